// The folder of the source tree, for tests that read files of the repository.
#ifndef TUTTI_TESTS_HARNESS_SOURCE_FOLDER_H_
#define TUTTI_TESTS_HARNESS_SOURCE_FOLDER_H_

#include <filesystem>

namespace tutti {

// The folder that has README.md. The path is compiled into one object of the harness only, so that a compiler cache
// serves the objects of the tests to checkouts in other folders.
std::filesystem::path SourceFolder();

}  // namespace tutti

#endif  // TUTTI_TESTS_HARNESS_SOURCE_FOLDER_H_
