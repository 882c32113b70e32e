// Creates topics and sends lines of its standard input as records: "partition key value", both in base64, "-" for none.
// The topics are named with commas between them.  All have the same number of partitions, which are counted through all topics.
// An empty line asks for an answer once all lines before it are acknowledged: the number of records so far.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Producer {
  public static void main(String[] given) throws Exception {
    List<String> topics = List.of(given[1].split(","));
    int partitions = Integer.parseInt(given[2]);
    Properties settings = new Properties();
    settings.put("bootstrap.servers", given[0]);
    createTopics(settings, topics.stream().map(topic -> new NewTopic(topic, partitions, (short) 1)).toList());
    settings.put("acks", "all");
    settings.put("enable.idempotence", "true"); // the order of a partition and each record once, also when the broker restarts
    settings.put("delivery.timeout.ms", "300000");
    AtomicReference<Exception> failed = new AtomicReference<>();
    long sent = 0;
    try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        var lines = new BufferedReader(new InputStreamReader(System.in))) {
      System.out.println("ready");
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        if (line.isEmpty()) {
          producer.flush();
          if (failed.get() != null) throw failed.get();
          System.out.println(sent);
        } else {
          String[] parts = line.split(" ");
          int partition = Integer.parseInt(parts[0]);
          var record = new ProducerRecord<>(topics.get(partition / partitions), partition % partitions, bytes(parts[1]), bytes(parts[2]));
          producer.send(record, (told, error) -> failed.compareAndSet(null, error));
          sent++;
        }
      }
    }
  }

  private static byte[] bytes(String text) {
    return text.equals("-") ? null : Base64.getDecoder().decode(text);
  }

  /**
   * Creates the topics, and waits until the broker leads their partitions: it tells of them before.
   *
   * <p>Of requests that are under way by then it refuses the first and takes a later one, which no retry puts in order again.
   */
  private static void createTopics(Properties settings, List<NewTopic> topics) throws ExecutionException, InterruptedException {
    try (Admin admin = Admin.create(settings)) {
      admin.createTopics(topics).all().get();
      Map<TopicPartition, OffsetSpec> ends = new HashMap<>();
      for (NewTopic topic : topics) {
        for (int number = 0; number < topic.numPartitions(); number++) {
          ends.put(new TopicPartition(topic.name(), number), OffsetSpec.latest());
        }
      }
      for (int left = 300; ; left--) {
        try {
          admin.listOffsets(ends).all().get();
          return;
        } catch (ExecutionException error) {
          if (left == 0 || !(error.getCause() instanceof RetriableException)) throw error;
          Thread.sleep(100);
        }
      }
    }
  }
}
