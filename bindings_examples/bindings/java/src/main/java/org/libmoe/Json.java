package org.libmoe;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Reads the JSON that the library writes: Map, List, String, Long, Double, Boolean, null. */
public final class Json {
  private final String text;
  private int at;

  private Json(String text) {
    this.text = text;
  }

  public static Object parse(String text) {
    Json json = new Json(text);
    Object value = json.value();
    json.space();
    if (json.at != text.length()) throw json.fault("the end");
    return value;
  }

  /** A document that is an object. */
  @SuppressWarnings("unchecked")
  public static Map<String, Object> object(String text) {
    return (Map<String, Object>) parse(text);
  }

  private IllegalArgumentException fault(String expected) {
    return new IllegalArgumentException("JSON, character " + at + ": expected " + expected);
  }

  private void space() {
    while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) ++at;
  }

  private boolean take(char c) {
    space();
    if (at >= text.length() || text.charAt(at) != c) return false;
    ++at;
    return true;
  }

  private void need(char c) {
    if (!take(c)) throw fault("'" + c + "'");
  }

  private Object value() {
    space();
    if (at >= text.length()) throw fault("a value");
    return switch (text.charAt(at)) {
      case '{' -> members();
      case '[' -> elements();
      case '"' -> string();
      case 't' -> word("true", true);
      case 'f' -> word("false", false);
      case 'n' -> word("null", null);
      default -> number();
    };
  }

  private Map<String, Object> members() {
    Map<String, Object> map = new LinkedHashMap<>();
    need('{');
    if (take('}')) return map;
    do {
      space();
      String name = string();
      need(':');
      map.put(name, value());
    } while (take(','));
    need('}');
    return map;
  }

  private List<Object> elements() {
    List<Object> list = new ArrayList<>();
    need('[');
    if (take(']')) return list;
    do list.add(value());
    while (take(','));
    need(']');
    return list;
  }

  private Object word(String word, Object value) {
    if (!text.startsWith(word, at)) throw fault(word);
    at += word.length();
    return value;
  }

  private Object number() {
    int from = at;
    while (at < text.length() && "+-.0123456789eE".indexOf(text.charAt(at)) >= 0) ++at;
    String digits = text.substring(from, at);
    try {
      return digits.matches("-?\\d+") ? (Object) Long.valueOf(digits) : (Object) Double.valueOf(digits);
    } catch (NumberFormatException e) {
      at = from;
      throw fault("a value");
    }
  }

  private String string() {
    need('"');
    StringBuilder out = new StringBuilder();
    while (at < text.length() && text.charAt(at) != '"') {
      char c = text.charAt(at++);
      if (c != '\\') {
        out.append(c);
        continue;
      }
      char escaped = at < text.length() ? text.charAt(at++) : ' ';
      int plain = "\"\\/bfnrt".indexOf(escaped);
      if (plain >= 0) {
        out.append("\"\\/\b\f\n\r\t".charAt(plain));
      } else if (escaped == 'u' && at + 4 <= text.length()) {
        out.append((char) Integer.parseInt(text, at, at + 4, 16));
        at += 4;
      } else {
        throw fault("an escape");
      }
    }
    need('"');
    return out.toString();
  }
}
