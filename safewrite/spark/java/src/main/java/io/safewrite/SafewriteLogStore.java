package io.safewrite;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Iterator;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** Hands every Delta commit of a Spark session to safewrite; all other files are written as Delta writes them. */
public final class SafewriteLogStore extends HadoopFileSystemLogStore {
  private static final Pattern COMMIT = Pattern.compile("\\d{20}\\.json");
  private static volatile CommitHook hook;

  public SafewriteLogStore(Configuration hadoopConf) {
    super(hadoopConf);
  }

  /** Called by {@code safewrite.spark.attach}; one hook serves every session of this JVM. */
  public static void setHook(CommitHook commitHook) {
    hook = commitHook;
  }

  @Override
  public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration hadoopConf)
      throws IOException {
    StringBuilder lines = new StringBuilder();
    actions.forEachRemaining(action -> lines.append(action).append('\n'));
    boolean isCommit =
        COMMIT.matcher(path.getName()).matches() && path.getParent().getName().equals("_delta_log");
    if (!isCommit) {
      try (OutputStream out = path.getFileSystem(hadoopConf).create(path, overwrite)) {
        out.write(lines.toString().getBytes(StandardCharsets.UTF_8));
      }
      return;
    }
    if (overwrite) {
      throw new IOException("Commit file " + path + " was to be overwritten. safewrite never does; nothing was written.");
    }
    commit(path, lines.toString());
  }

  private static void commit(Path path, String body) throws IOException {
    CommitHook current = hook;
    if (current == null) {
      throw new IOException(
          "safewrite's log store has no commit protocol yet: call safewrite.spark.attach(session) in the driver "
              + "before the first write. Nothing was committed at " + path + ".");
    }
    String answer = current.commit(path.toString(), body);
    if (answer.equals("exists")) {
      throw new FileAlreadyExistsException(path.toString());
    }
    if (!answer.isEmpty()) {
      throw new IOException(answer);
    }
  }

  /** An object appears when it is whole; a file on a disk grows, so Delta must rename it into place. */
  @Override
  public Boolean isPartialWriteVisible(Path path, Configuration hadoopConf) throws IOException {
    return path.getFileSystem(hadoopConf).getScheme().equals("file");
  }
}
