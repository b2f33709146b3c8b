"""Each rule rejects a bad sample and accepts a good one."""

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
            ("src/plan/x.cc", "std::cout << 1;\n"),
            ("src/plan/x.cc", 'printf("1");\n'),
        ]:
            self.assertEqual(len(self.violations(path, content)), 1, (path, content[:20]))

    def test_good_files_pass(self):
        for path, content in [
            ("src/plan/x.cc", "\n" * 600),
            ("src/base/logging.cc", 'std::fprintf(stderr, "x");\nstd::snprintf(b, 1, "x");\nabsl::SNPrintF();\n'),
            ("bindings/cli/main.cc", 'printf("1");\n'),
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
    def test_bad_names_and_use_after_move_are_found(self):
        with tempfile.TemporaryDirectory(dir=tree.ROOT / "build") as folder:  # .clang-tidy lies above this folder
            build = pathlib.Path(folder)
            source = build / "x.cc"
            source.write_text(
                "#include <string>\n#include <utility>\n"
                "std::string F(std::string a) { std::string B = std::move(a); return B + a; }\n")
            (build / "compile_commands.json").write_text(
                f'[{{"directory": "{build}", "command": "c++ -std=c++20 -c x.cc", "file": "x.cc"}}]')
            output = tidy.check(source.relative_to(tree.ROOT), build)
            self.assertIn("bugprone-use-after-move", output)
            self.assertIn("readability-identifier-naming", output)
            source.write_text("int F(int a) { return a; }\n")
            self.assertEqual(tidy.check(source.relative_to(tree.ROOT), build), "")

    def test_a_changed_header_changes_the_fingerprint(self):
        seen = set()
        tidy.dependencies("src/plan/codec.cc", seen)
        self.assertIn("include/tutti/codec.h", seen)
        first = tidy.fingerprint("src/plan/codec.cc", "c++", tree.ROOT)
        self.assertNotEqual(first, tidy.fingerprint("src/plan/codec.cc", "c++ -O2", tree.ROOT))
        self.assertEqual(first, tidy.fingerprint("src/plan/codec.cc", "c++", tree.ROOT))


if __name__ == "__main__":
    unittest.main()
