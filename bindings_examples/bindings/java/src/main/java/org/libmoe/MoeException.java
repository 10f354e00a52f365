package org.libmoe;

import java.nio.file.AccessDeniedException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.NoSuchFileException;

/**
 * What the library has against a call. Where the system refused a file, the cause is what java.nio.file would throw:
 * NoSuchFileException and the like.
 */
public final class MoeException extends RuntimeException {
  private static final long serialVersionUID = 1;
  public static final int INVALID_ARGUMENT = 1, INVALID_HANDLE = 3, MISSING_WEIGHT = 6, IO = 12, CANCELLED = 15, CALLBACK = 17,
                          BUSY = 18;

  private final int status;
  private final String code, subject, details;

  MoeException(int status, String code, String subject, String message, String details) {
    super(subject.isEmpty() ? message : subject + ": " + message, cause(status, subject, message, details));
    this.status = status;
    this.code = code;
    this.subject = subject;
    this.details = details;
  }

  private static FileSystemException cause(int status, String file, String reason, String details) {
    if (status != IO || !(Json.object(details).get("errno") instanceof Long number)) return null;
    return switch (number.intValue()) {
      case 2 -> new NoSuchFileException(file, null, reason); // ENOENT
      case 13 -> new AccessDeniedException(file, null, reason); // EACCES
      case 17 -> new FileAlreadyExistsException(file, null, reason); // EEXIST
      default -> new FileSystemException(file, null, reason);
    };
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
