package io.safewrite;

/** The commit protocol, which Python implements: there is one of it for all engines. */
public interface CommitHook {
  /**
   * Make {@code body} the commit file at {@code path}.
   *
   * @return "" if it landed there, "exists" if another commit certainly stands there, else what went wrong
   */
  String commit(String path, String body);
}
