#!/usr/bin/env python3
"""Libraries that are not the tool's: each is refused, with its file and both versions."""
import subprocess
import unittest

from moe_tool import Case, run


class Libraries(Case):
    def test_wrong_libraries_are_named(self):
        """A library of another ABI, one that is older, and one that lacks a function."""
        source = self.folder / "other.c"
        full = ('const char* moe_build_info_json(void) { return "{}"; }\nvoid moe_checkpoint_open(void) {}\n'
                "void moe_control_state(void) {}\nvoid moe_checkpoint_fingerprint(void) {}\n")
        lacking = 'const char* moe_build_info_json(void) { return "{}"; }\n'
        for abi, number, rest, says in ((7, 1000, full, "ABI 7"), (0, 1, full, "older"), (0, 1000, lacking, "moe_checkpoint_open")):
            source.write_text(f'int moe_abi_version(void) {{ return {abi}; }}\nint moe_version_number(void) {{ return {number}; }}\n'
                              f'const char* moe_version_string(void) {{ return "9.9.9"; }}\n{rest}')
            (self.folder / "symbols.map").write_text("LIBMOE_0 { global: moe_*; };\n")
            library = self.folder / "libmoe.so.0"
            subprocess.run(["cc", "-shared", "-fPIC", f"-Wl,--version-script={self.folder}/symbols.map", "-Wl,-soname,libmoe.so.0",
                            str(source), "-o", str(library)], check=True)
            done = run("doctor", env={"LD_PRELOAD": str(library)})
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(says, done.stderr)
            self.assertIn(str(library), done.stderr)
            self.assertIn("9.9.9", done.stderr)


if __name__ == "__main__":
    unittest.main()
