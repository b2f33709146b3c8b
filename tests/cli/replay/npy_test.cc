#include "bindings/cli/replay/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "tests/cli/command_run.h"

namespace tutti::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The bytes of a .npy file with the given version, header and values.
std::string File(int version, const std::string& header, const std::string& values) {
  std::string file = std::string("\x93NUMPY") + static_cast<char>(version) + '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return file + header + values;
}

std::string Bytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

std::string ErrorOf(const std::string& file) {
  const absl::Status status = ParseNpy(file).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(Npy, ReadsEveryVersion) {
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";
  for (const int version : {1, 2, 3}) {
    const absl::StatusOr<Array> array = ParseNpy(File(version, header, Bytes({1, 2, 3, 4, 5, 6})));
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_THAT(array->shape, ElementsAre(2, 3));
    EXPECT_THAT(array->values, ElementsAre(1, 2, 3, 4, 5, 6));
  }
}

TEST(Npy, ReadsHeadersInAnyOrderAndSpacing) {
  const absl::StatusOr<Array> array =
      ParseNpy(File(1, "{'shape':(3,),'fortran_order':False,'descr':'<f4'}", Bytes({7, 8, 9})));
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_THAT(array->shape, ElementsAre(3));
}

TEST(Npy, ReadsShapesOfNothingAndOfOneNumber) {
  absl::StatusOr<Array> array =
      ParseNpy(File(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", Bytes({7})));
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_TRUE(array->shape.empty());
  EXPECT_THAT(array->values, ElementsAre(7));
  array = ParseNpy(File(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 0, 9223372036854775807), }", ""));
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_TRUE(array->values.empty());
}

TEST(Npy, WritesWhatItReadsAlignedAsNumPyDoes) {
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{}, {1}, {0}, {50}, {3, 0, 2}, {2, 3, 4}, {1, 1, 1, 1, 7}}) {
    Array array{.shape = shape, .values = {}};
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    for (std::int64_t i = 0; i < count; ++i) array.values.push_back(static_cast<float>(i) - 0.5f);
    const std::string file = FormatNpy(array);
    EXPECT_EQ((file.size() - array.values.size() * sizeof(float)) % 64, 0U);
    EXPECT_EQ(file[file.size() - array.values.size() * sizeof(float) - 1], '\n');
    const absl::StatusOr<Array> read = ParseNpy(file);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->shape, array.shape);
    EXPECT_EQ(read->values, array.values);
  }
}

TEST(Npy, KeepsTheBitsOfEveryNumber) {
  const float values[] = {std::numeric_limits<float>::quiet_NaN(), -0.0f, std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::denorm_min()};
  const absl::StatusOr<Array> read = ParseNpy(FormatNpy({.shape = {4}, .values = {values, values + 4}}));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(Bytes(read->values), Bytes({values, values + 4}));
}

TEST(Npy, SaysWhatIsWrong) {
  const std::string start = "{'descr': '<f4', 'fortran_order': False, 'shape': ";
  EXPECT_THAT(ErrorOf(""), HasSubstr("is no .npy file"));
  EXPECT_THAT(ErrorOf("PK\3\4 an archive"), HasSubstr("is no .npy file"));
  EXPECT_THAT(ErrorOf(std::string("\x93NUMPY")), HasSubstr("ends within its version"));
  EXPECT_THAT(ErrorOf(std::string("\x93NUMPY\4\0\0\0", 10)), HasSubstr("is of version 4.0"));
  EXPECT_THAT(ErrorOf(std::string("\x93NUMPY\1\0\7", 9)), HasSubstr("ends within the length of its header"));
  EXPECT_THAT(ErrorOf(File(1, start, "").substr(0, 20)), HasSubstr("ends within its header"));
  EXPECT_THAT(ErrorOf(File(1, "{}", "")), HasSubstr("has no 'descr' in its header"));
  EXPECT_THAT(ErrorOf(File(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }", "12345678")),
              HasSubstr("'<f8'; needed is '<f4', float32 in little-endian order: save it with .astype('<f4')"));
  EXPECT_THAT(ErrorOf(File(1, "{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", "1234")),
              HasSubstr("'>f4'"));
  EXPECT_THAT(ErrorOf(File(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "1234")),
              HasSubstr("[('a', '<f4')]"));
  EXPECT_THAT(ErrorOf(File(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }", "1234")),
              HasSubstr("numpy.ascontiguousarray"));
  EXPECT_THAT(ErrorOf(File(1, start + "(2, 2), }", Bytes({1, 2, 3}))),
              HasSubstr("has 12 bytes of values, which do not make the float32 array of shape (2, 2)"));
  EXPECT_THAT(ErrorOf(File(1, start + "(2,), }", "1234567")), HasSubstr("has 7 bytes"));
  EXPECT_THAT(ErrorOf(File(1, start + "(4611686018427387904, 4), }", "")), HasSubstr("do not make"));
  EXPECT_THAT(ErrorOf(File(1, start + "(-1,), }", "")), HasSubstr("shape (-1,)"));
  EXPECT_THAT(ErrorOf(File(1, start + "(two,), }", "")), HasSubstr("shape (two,)"));
  EXPECT_THAT(ErrorOf(File(1, start + "7, }", Bytes({1}))), HasSubstr("shape 7"));
  EXPECT_THAT(ErrorOf(File(1, start + "(7", Bytes({1}))), HasSubstr("shape (7"));
}

TEST(Npy, NoBytesCrashTheReader) {
  std::mt19937 random(3);
  const std::string sound = FormatNpy({.shape = {2, 3}, .values = {1, 2, 3, 4, 5, 6}});
  for (std::size_t length = 0; length < sound.size(); ++length) EXPECT_FALSE(ParseNpy(sound.substr(0, length)).ok());
  for (int i = 0; i < 5000; ++i) {
    std::string file = sound;
    for (unsigned change = 0; change <= random() % 3; ++change) {
      file[random() % 80] = static_cast<char>(i % 2 == 0 ? random() : "(),'{}: 0<f4T"[random() % 13]);
    }
    (void)ParseNpy(file);
  }
}

TEST(Npy, FilesAreNamedInErrors) {
  EXPECT_THAT(std::string(ReadNpy("/nowhere/g.npy").status().message()), HasSubstr("cannot read /nowhere/g.npy"));
  EXPECT_THAT(std::string(ReadNpy(testing::TempDir()).status().message()), HasSubstr("Is a directory"));
  const ScratchFile file(".npy");
  std::ofstream(file.path()) << "no array";
  EXPECT_THAT(std::string(ReadNpy(file.path()).status().message()), HasSubstr(file.path() + " is no .npy file"));
  EXPECT_THAT(std::string(WriteNpy("/nowhere/w.npy", {}).message()), HasSubstr("cannot write /nowhere/w.npy"));
  EXPECT_TRUE(WriteNpy(file.path(), {.shape = {1}, .values = {3}}).ok());
  EXPECT_THAT(ReadNpy(file.path())->values, ElementsAre(3));
}

}  // namespace
}  // namespace tutti::cli
