package org.libmoe;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;

/** The backend and kernel for a config, and why each other candidate is not it; immutable. */
public final class Selection extends Handle {
  public static final int EXPLAIN_ONLY = Library.constant("MOE_SELECT_EXPLAIN_ONLY");
  public static final int ALLOW_FALLBACK = Library.constant("MOE_SELECT_ALLOW_FALLBACK");

  /** reason: "MOE_REJECT_NONE" when it could run this config. */
  public record Candidate(String backend, String kernel, int priority, boolean chosen, String reason, String subject,
                          String detail) {}

  public record Size(long bytes, long alignment) {}

  public Selection(Config config) {
    this(config, null, null, 0);
  }

  public Selection(Config config, Context context) {
    this(config, context, null, 0);
  }

  /** context and platform may be null: one thread; the config's platform, by default this machine. */
  public Selection(Config config, Context context, Platform platform, int flags) {
    super("selection", create("moe_select_backend", context, config, platform, flags));
  }

  /** "" when no backend accepts (EXPLAIN_ONLY). */
  public String backend() {
    return text("moe_selection_backend");
  }

  public String kernel() {
    return text("moe_selection_kernel");
  }

  /** Identity of the packed layout. */
  public String layout() {
    return text("moe_selection_layout");
  }

  private String text(String function) {
    return held(() -> Library.text(invoke(function, this)));
  }

  /** All, in the order in which they are tried. */
  public List<Candidate> candidates() {
    return held(this::readCandidates);
  }

  private List<Candidate> readCandidates() {
    List<Candidate> all = new ArrayList<>();
    try (Arena arena = Arena.ofConfined()) {
      long count = (long) invoke("moe_selection_candidate_count", this);
      MemorySegment c = Library.struct(arena, "moe_candidate");
      for (long i = 0; i < count; ++i) {
        check("moe_selection_candidate", this, i, c);
        all.add(new Candidate(member(c, "backend"), member(c, "kernel"), number(c, "priority"), number(c, "chosen") == 1,
            Library.text(Library.call("moe_reject_name", number(c, "reason"))), member(c, "subject"), member(c, "detail")));
      }
    }
    return all;
  }

  private static String member(MemorySegment candidate, String name) {
    return Library.getText(candidate, "moe_candidate", name);
  }

  private static int number(MemorySegment candidate, String name) {
    return Library.getInt(candidate, "moe_candidate", name);
  }

  /** What the converted weights will take. */
  public Size packedSize() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment bytes = arena.allocate(ValueLayout.JAVA_LONG), alignment = arena.allocate(ValueLayout.JAVA_LONG);
      check("moe_selection_packed_size", this, bytes, alignment);
      return new Size(bytes.get(ValueLayout.JAVA_LONG, 0), alignment.get(ValueLayout.JAVA_LONG, 0));
    }
  }

  /** What was asked for and what runs, as JSON. */
  public String report() {
    return textOf("moe_selection_to_json", this);
  }
}
