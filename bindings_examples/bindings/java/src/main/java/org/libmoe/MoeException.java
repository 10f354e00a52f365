package org.libmoe;

/** What the library has against a call. */
public final class MoeException extends RuntimeException {
  private static final long serialVersionUID = 1;
  public static final int INVALID_ARGUMENT = 1, INVALID_HANDLE = 3, MISSING_WEIGHT = 6, CANCELLED = 15, CALLBACK = 17,
                          BUSY = 18;

  private final int status;
  private final String code, subject, details;

  MoeException(int status, String code, String subject, String message, String details) {
    super(subject.isEmpty() ? message : subject + ": " + message);
    this.status = status;
    this.code = code;
    this.subject = subject;
    this.details = details;
  }

  public int status() {
    return status;
  }

  /** "MOE_ERR_IO" */
  public String code() {
    return code;
  }

  /** Where: a JSON pointer, a role, a path, a parameter, or "". */
  public String subject() {
    return subject;
  }

  /** JSON: expected, actual, needed, errno, cause, candidates, as they apply. */
  public String details() {
    return details;
  }
}
