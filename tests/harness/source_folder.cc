#include "tests/harness/source_folder.h"

namespace tutti {

std::filesystem::path SourceFolder() { return TUTTI_SOURCE_DIR; }

}  // namespace tutti
