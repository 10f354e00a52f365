#!/usr/bin/env python3
"""Libraries that are not the tool's: each is refused, with its file and both versions."""
import shutil
import subprocess
import unittest

from moe_tool import TOOL, Case, run


class Libraries(Case):
    def test_wrong_libraries_are_named(self):
        """A library of another ABI, one that is older, and one that lacks a function."""
        source = self.folder / "other.c"
        full = ('const char* moe_build_info_json(void) { return "{}"; }\nvoid moe_checkpoint_open(void) {}\n'
                "void moe_control_state(void) {}\nvoid moe_checkpoint_fingerprint(void) {}\n")
        lacking = 'const char* moe_build_info_json(void) { return "{}"; }\n'
        for abi, number, rest, says in ((7, 1000, full, "ABI 7"), (0, 1, full, "older"), (0, 1000, lacking, "it lacks moe_")):
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

    def test_libraries_that_lack_anything_are_named(self):
        """Each function that the tool calls is looked for first: a missing one is no call of address 0."""
        symbols = subprocess.run(["nm", "-D", "--undefined-only", TOOL], capture_output=True, text=True, check=True).stdout
        called = sorted({word.split("@")[0] for word in symbols.split() if word.startswith("moe_")} - {"moe_abi_version"})
        self.assertGreater(len(called), 30)
        for missing in called:
            others = "".join(f"void {name}(void) {{}}\n" for name in called if name not in (missing, "moe_version_string", "moe_version_number"))
            known = {"moe_version_string": 'const char* moe_version_string(void) { return "9.9.9"; }\n',
                     "moe_version_number": "int moe_version_number(void) { return 1000; }\n"}
            (self.folder / "other.c").write_text("int moe_abi_version(void) { return 0; }\n" + others
                                                 + "".join(text for name, text in known.items() if name != missing))
            library = self.folder / "libmoe.so.0"
            (self.folder / "symbols.map").write_text("LIBMOE_0 { global: moe_*; };\n")
            subprocess.run(["cc", "-shared", "-fPIC", f"-Wl,--version-script={self.folder}/symbols.map", "-Wl,-soname,libmoe.so.0",
                            str(self.folder / "other.c"), "-o", str(library)], check=True)
            # Alone: with LD_PRELOAD the right library would still have what this one lacks.
            done = run("doctor", env={"LD_LIBRARY_PATH": str(self.folder)}, executable=self.tool_without_path())
            self.assertEqual(done.returncode, 1, (missing, done.stderr))
            self.assertIn(f"it lacks {missing};", done.stderr)

    def tool_without_path(self):
        """A copy elsewhere, whose RUNPATH leads to no library."""
        copy = self.folder / "bin" / "moe"
        if not copy.exists():
            copy.parent.mkdir()
            shutil.copy(TOOL, copy)
        return copy


if __name__ == "__main__":
    unittest.main()
