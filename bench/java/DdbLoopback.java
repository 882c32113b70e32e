// DynamoDB Local has no option for its host and listens on every interface; this binds it to loopback.

import com.amazonaws.services.dynamodbv2.local.main.ServerRunner;
import org.eclipse.jetty.server.Connector;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

public class DdbLoopback {
  public static void main(String[] args) throws Exception {
    var runner = ServerRunner.createServerFromCommandLineArgs(args);
    for (var field : runner.getClass().getDeclaredFields()) {
      if (Server.class.isAssignableFrom(field.getType())) {
        field.setAccessible(true);
        for (Connector connector : ((Server) field.get(runner)).getConnectors()) {
          if (connector instanceof ServerConnector socket) socket.setHost("127.0.0.1");
        }
      }
    }
    runner.start();
  }
}
