"""Each rule rejects a bad sample and accepts a good one."""

import contextlib
import io
import os
import pathlib
import tempfile
import unittest

import doc_code
import file_rules
import format
import includes
import links
import tidy
import tree


class Includes(unittest.TestCase):
    def setUp(self):
        self.tables = includes.read_tables((tree.ROOT / includes.ARCHITECTURE).read_text())

    def violations(self, path, *headers):
        return includes.violations_of(path, "".join(f"#include {h}\n" for h in headers), *self.tables)

    def test_each_forbidden_direction_is_rejected(self):
        for path, header in [
            ("include/tutti/x.h", '"engine/x.h"'),
            ("src/plan/x.cc", '"engine/host_executor.h"'),
            ("src/engine/x.cc", '"comm/x.h"'),
            ("src/engine/x.cc", '"transports/ucx/endpoint.h"'),
            ("src/sync/x.cc", '"tutti/transport.h"'),
            ("algorithms/schedules/all_reduce/ring.cc", '"engine/x.h"'),
            ("algorithms/bytegrad.cc", '"tutti/transport.h"'),
            ("algorithms/bytegrad.cc", "<thread>"),
            ("src/plan/x.cc", "<chrono>"),
            ("transports/inproc/x.cc", '"transports/ucx/x.h"'),
            ("transports/inproc/x.cc", "<ucp/api/ucp.h>"),
            ("src/comm/x.cc", "<nccl.h>"),
            ("src/memory/arena.cc", "<cuda_runtime.h>"),
            ("src/sync/x.cc", "<torch/torch.h>"),
            ("bindings/torch/x.cc", '"sync/synchronizer.h"'),
            ("src/comm/x.cc", "<iostream>"),
            ("transports/ucx/x.cc", '"transports/inproc/x.h"'),
            ("src/engine/x.cc", '"transports/errors.h"'),
        ]:
            self.assertEqual(len(self.violations(path, header)), 1, (path, header))

    def test_what_the_table_allows_passes(self):
        for path, *headers in [
            ("include/tutti/plan.h", '"tutti/codec.h"', "<memory>", '"absl/types/span.h"'),
            ("src/engine/x.cc", '"engine/x.h"', '"plan/x.h"', '"tutti/transport.h"', "<thread>"),
            ("algorithms/codecs/x.cc", '"kernels/x.h"', '"tutti/codec.h"', "<hwy/highway.h>"),
            ("transports/ucx/endpoint.cc", '"transports/ucx/endpoint.h"', '"transports/errors.h"', "<ucp/api/ucp.h>", '"base/x.h"'),
            ("src/memory/cuda_memory.cc", "<cuda_runtime.h>"),
            ("tests/engine/x_test.cc", '"comm/x.h"', '"transports/ucx/x.h"'),
        ]:
            self.assertEqual(self.violations(path, *headers), [])

    def test_a_folder_without_a_row_is_rejected(self):
        self.assertEqual(len(self.violations("src/new/x.cc")), 1)


class DocCode(unittest.TestCase):
    FILES = {"x.cc": "// [sum]\n  int x;\n// [sum]\nint z;\n", "y.cc": "  int y;\nint z;\n"}

    def check(self, text):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, content in self.FILES.items():
                (root / name).write_text(content, encoding="utf-8")
            return doc_code.check("a.md", text, root)

    def test_a_block_equals_its_source(self):
        page = "<!-- {} -->\n```cpp\n{}```\n"
        for source, code, wrong in [
            ("file: y.cc", "  int y;\nint z;\n", 0),
            ("file: y.cc", "int y;\n", 1),
            ("file: x.cc region: sum", "int x;\n", 0),
            ("file: x.cc region: sum", "int y;\n", 1),
            ("file: x.cc region: product", "int x;\n", 1),
            ("file: z.cc", "int x;\n", 1),
            ("diff: x.cc y.cc", "--- x.cc\n+++ y.cc\n@@ -1,2 +1,2 @@\n-  int x;\n+  int y;\n int z;\n", 0),
            ("diff: x.cc y.cc", "-  int x;\n", 1),
        ]:
            self.assertEqual(len(self.check(page.format(source, code))[0]), wrong, (source, code))
            in_sh = page.replace("cpp", "sh").format(source, code)
            self.assertEqual(len(self.check(in_sh)[0]), wrong, (source, code))

    def test_code_from_nowhere(self):
        self.assertEqual(len(self.check("```cpp\nint x;\n```\n")[0]), 1)
        self.assertEqual(len(self.check("```sh\nmake\n```\n```\ntext\n```\n")[0]), 0)

    def test_mends(self):
        found, mended = self.check("a\n\n<!-- file: x.cc region: sum -->\n```cpp\n```\nb\n")
        self.assertEqual((len(found), mended), (1, "a\n\n<!-- file: x.cc region: sum -->\n```cpp\nint x;\n```\nb\n"))


class Links(unittest.TestCase):
    FILES = {"a.cc": "", "docs/b.md": "# Title\n\n## `dp`, and its *ends*\n```sh\n# no heading\n```\n### See [c](c.md): x-y\n"}

    def dead(self, text, page="docs/page.md"):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs").mkdir()
            for name, content in [*self.FILES.items(), (page, text)]:
                (root / name).write_text(content, encoding="utf-8")
            return list(links.dead(page, text, root))

    def test_dead_links_and_anchors_are_rejected(self):
        for text in ["[a](z.cc)", "[a](b.md#titel)", "[a](#here)", "![a](b.svg)", "[`a`](c.md)", "[a](../a.cc#title)",
                     "[a](b.md#no-heading)", "[a](docs/b.md)", "# Here\n\n[a](#there)"]:
            self.assertEqual(len(self.dead(text)), 1, text)

    def test_live_links_and_code_pass(self):
        for text in ["[a](b.md)", "[a](../a.cc)", "[a](https://example.org)", "[a](..)", "[a](b.md#title)", "`[a](z)`",
                     "[a](b.md#dp-and-its-ends) and [b](b.md#see-c-x-y)", "```cpp\n[](z)\n```", "# Here\n\n[a](#here)"]:
            self.assertEqual(self.dead(text), [], text)
        self.assertEqual(self.dead("[a](docs/b.md#title)", "page.md"), [])

    def test_links_are_rewritten_outside_code(self):
        self.assertEqual(links.with_links("[a](x) `[b](x)` [c](http://x)\n```\n[d](x)\n```\n[`e`](x#y)", lambda link: f"<{link}>"),
                         "[a](<x>) `[b](x)` [c](http://x)\n```\n[d](x)\n```\n[`e`](<x#y>)")

    def test_each_page_is_listed_once(self):
        contents = "# All\n\n## Start\n\n- [B](b.md): what b says\n\n### More\n\n- [C](../c.md)\n\n## End\n\n- [D](d.md)\n"
        self.assertEqual(links.navigation(contents), [
            (["Start"], "B", "docs/b.md"), (["Start", "More"], "C", "c.md"), (["End"], "D", "docs/d.md")])
        pages = ["docs/b.md", "c.md", "docs/d.md"]
        self.assertEqual(links.unlisted(contents, pages), [])
        self.assertEqual(links.unlisted(contents, [*pages, "docs/e.md"]), ["docs/contents.md: lacks docs/e.md"])
        self.assertEqual(links.unlisted(contents + "- [B](b.md)\n", pages), ["docs/contents.md: has docs/b.md twice"])
        self.assertEqual(len(links.unlisted(contents + "- see [B](b.md)\n", pages)), 1)


class Files(unittest.TestCase):
    def violations(self, path, content="", root=tree.ROOT):
        return list(file_rules.violations_of(path, content, root))

    def test_bad_files_are_rejected(self):
        for path, content in [
            ("src/plan/x.cc", "\n" * 601),
            ("src/base/string_utils.h", ""),
            ("src/common/x.h", ""),
            ("src/plan/x.cc", "\tint x;\n"),
            ("src/plan/x.cc", "int x;"),
            ("src/plan/x.cc", "// TODO: the rest\n"),
            ("src/plan/x.cc", "// A comment that ends early and\n// goes on.\n"),
            ("src/plan/x.cc", "std::cout << 1;\n"),
            ("src/plan/x.cc", 'printf("1");\n'),
            ("src/kernels/x.h", "TUTTI_HOST_DEVICE int F(unsigned n) { return std::bit_width(n); }\n"),
        ]:
            self.assertEqual(len(self.violations(path, content)), 1, (path, content[:20]))

    def test_good_files_pass(self):
        for path, content in [
            ("src/plan/x.cc", "\n" * 600),
            ("src/base/config.cc", 'std::fprintf(stderr, "x");\nstd::snprintf(b, 1, "x");\nabsl::SNPrintF();\n'),
            ("src/plan/x.cc", "// A sentence.\n// Another one:\n// x ← y\n// - an item\n// [region]\n// " + "x" * 113 + "\n// goes on\n"),
            ("bindings/cli/main.cc", 'printf("1");\n'),
            ("src/kernels/x.h", "inline int F(unsigned n) { return std::bit_width(n); }\n"),
        ]:
            self.assertEqual(self.violations(path, content), [])

    def test_tests_mirror_the_tree(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "src/plan").mkdir(parents=True)
            (root / "src/plan/verifier.cc").touch()
            for path in ("plan/verifier_test.cc", "plan/verifier_mutation_test.cc", "harness/world_test.cc"):
                self.assertEqual(self.violations("tests/" + path, root=root), [], path)
            for path in ("plan/builder_test.cc", "elsewhere/verifier_test.cc"):
                self.assertEqual(len(self.violations("tests/" + path, root=root)), 1, path)


class Format(unittest.TestCase):
    def test_only_what_clang_format_writes_passes(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / ".clang-format").write_text((tree.ROOT / ".clang-format").read_text())
            (root / "good.cc").write_text("int x = 1;\n")
            (root / "bad.cc").write_text("int  x=1;\n int y ;\n")
            self.assertEqual(format.unformatted(["bad.cc", "good.cc"], root), ["bad.cc"])


class Tidy(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "src").mkdir()  # .clang-tidy names the folders that findings are told of

    def sources(self, **texts):
        """Writes sources; returns their paths."""
        paths = [str(self.folder / f"src/{name}.cc") for name in texts]
        for path, text in zip(paths, texts.values()):
            pathlib.Path(path).write_text(text)
        return paths

    def check(self, *unit):
        return tidy.check(unit, ["-std=c++20"], self.folder)

    def passing(self, unit):
        """The sources that pass, and what is printed of the others."""
        with contextlib.redirect_stdout(io.StringIO()) as output:
            return tidy.passing(unit, ["-std=c++20"], self.folder, set()), output.getvalue()

    def test_bad_names_and_use_after_move_are_found(self):
        bad, good = self.sources(
            bad="#include <string>\n#include <utility>\n"
                "std::string F(std::string a) { std::string B = std::move(a); return B + a; }\n",
            good="int F(int a) { return a; }\n")
        self.assertIn("bugprone-use-after-move", self.check(bad))
        self.assertIn("readability-identifier-naming", self.check(bad))
        self.assertEqual(self.check(good), "")

    def test_what_is_found_in_a_source_is_found_among_others(self):
        half = "double {}(int a) {{ return a / 2 * 1.0; }}\n"
        unit = self.sources(a="int A() { return 1; }\n", b=half.format("B"), c="int C() { return 1; }\n", d=half.format("D"),
                            e="int E() { return 1; }\n")
        passed, output = self.passing(unit)
        self.assertEqual(passed, [unit[0], unit[2], unit[4]])
        for path in (unit[1], unit[3]):
            self.assertEqual(output.count(f"{path}:1:"), 1, output)

    def test_what_is_wrong_only_of_sources_together_is_not_printed(self):
        unit = self.sources(a="struct T {};\n", b="enum T { kOne };\n", c="struct T {};\n",
                            d="namespace n {\nint N();\n}\nusing n::N;\n")
        self.assertIn("google-global-names-in-headers", self.check(unit[0], unit[3]))
        self.assertIn("redefinition", self.check(*unit))
        self.assertEqual(self.passing(unit), (unit, ""))

    def test_what_is_found_in_a_header_is_printed_once(self):
        (self.folder / "src/h.h").write_text("#pragma once\nint bad_Name();\n")
        include = '#include "h.h"\n'
        unit = self.sources(a=include, b="int B() { return 1; }\n", c=include, d=include)
        passed, output = self.passing(unit)
        self.assertEqual(passed, [unit[1]])
        self.assertEqual(output.count("readability-identifier-naming"), 1, output)

    def test_names_macros_and_the_kernel_s_headers_divide_sources(self):
        own = "namespace {{\n\n{}\n\n}}  // namespace\n"
        paths = self.sources(a=own.format("constexpr int kSame = 1;"), b=own.format("bool kSame(int a) {"), c="int kSame;\n",
                             d="#define D\n", e="#include <linux/tcp.h>\n", f=own.format("  int kSame = 1;"),
                             g=own.format("struct S {"))
        a, b, c, d, e, f, g = paths
        self.assertEqual(tidy.units_of(paths), [[d], [e], [a, c, f, g], [b]])
        many = [c] * (tidy.MOST_TOGETHER + 1)
        self.assertEqual([len(unit) for unit in tidy.units_of(many)], [tidy.MOST_TOGETHER, 1])

    def test_schedules_are_together_though_each_has_a_build(self):
        (self.folder / "src/h.h").write_text("#pragma once\nstruct Builder {\n  int Build() { return 1; }\n};\n")
        schedule = ('#include "src/h.h"\nnamespace {{\nvoid Build(Builder&) {{ {} }}\n}}  // namespace\n'
                    "void (*{})(Builder&) = Build;\n")
        unit = self.sources(a=schedule.format("", "a"), b=schedule.format("int Bad = 1;", "b"), c="#include \"src/h.h\"\n"
                            "int C() { return Builder().Build(); }\n")
        self.assertEqual(tidy.units_of(unit), [unit])
        output = tidy.check(unit, ["-std=c++20", f"-I{self.folder}"], self.folder)
        self.assertEqual(len(tidy.FINDING.findall(output)), 1, output)
        self.assertIn(f"{unit[1]}:3:28: error: invalid case style for variable 'Bad'", output)

    def test_flags_are_those_of_the_command_without_precompiled_headers(self):
        flags = tidy.flags_of('c++ -DA=\\"a\\" -O2 -Winvalid-pch -include /b/cmake_pch.hxx -std=c++20 -o x.o -c x.cc')
        self.assertEqual(flags, ('-DA="a"', "-O2", "-std=c++20", *tidy.EXTRA))

    def test_sources_of_unity_builds_are_seen(self):
        a, unity = "/x/src/a.cc", self.folder / "Unity/unity_0_cxx.cxx"
        unity.parent.mkdir()
        unity.write_text(f'/* generated by CMake */\n\n#include "{a}"\n\n#include "{tree.ROOT}/src/b.cc"\n')
        entry = {"directory": str(self.folder), "file": str(unity)}
        self.assertEqual(tidy.sources_of(entry), [os.path.relpath(a, tree.ROOT), "src/b.cc"])
        self.assertEqual(tidy.sources_of({"directory": str(tree.ROOT), "file": "src/b.cc"}), ["src/b.cc"])

    def test_a_changed_header_changes_the_fingerprint(self):
        seen = set()
        tidy.dependencies("src/plan/codec.cc", seen)
        self.assertIn("include/tutti/codec.h", seen)
        first = tidy.fingerprint("src/plan/codec.cc", ["-O1"], tree.ROOT)
        self.assertNotEqual(first, tidy.fingerprint("src/plan/codec.cc", ["-O2"], tree.ROOT))
        self.assertEqual(first, tidy.fingerprint("src/plan/codec.cc", ["-O1"], tree.ROOT))


if __name__ == "__main__":
    unittest.main()
