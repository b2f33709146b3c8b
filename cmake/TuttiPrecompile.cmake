# Headers that many sources include, parsed once for all of them: a third of a test's compile time, three quarters of one
# that includes torch. The presets that build everything turn it on; a build without it finds includes that are missing.
option(TUTTI_PRECOMPILE "Parse once what many sources include: standard headers, Abseil's, GoogleTest's and torch's" OFF)

# tutti_precompile(OWNER LIBRARIES LIBRARY... HEADERS HEADER... [OPTIONS OPTION...]): OWNER's headers, for
# tutti_use_precompiled. The programs that use the headers are compiled with the same options.
function(tutti_precompile owner)
  if(NOT TUTTI_PRECOMPILE)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LIBRARIES;HEADERS;OPTIONS")
  # A program, since those that use the headers are: a library is compiled with other flags.
  file(CONFIGURE OUTPUT ${owner}.cc CONTENT "int main() { return 0; }\n")
  add_executable(${owner} EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/${owner}.cc)
  target_link_libraries(${owner} PRIVATE ${arg_LIBRARIES})
  target_compile_options(${owner} PRIVATE ${arg_OPTIONS})
  target_precompile_headers(${owner} PRIVATE ${arg_HEADERS})
endfunction()

# tutti_use_precompiled(PROGRAM OWNER): PROGRAM's sources start from OWNER's headers, where there are such.
function(tutti_use_precompiled program owner)
  if(TARGET ${owner})
    target_precompile_headers(${program} REUSE_FROM ${owner})
  endif()
endfunction()

# What the library's own sources include. In builds that lint does not read: clang-tidy cannot read g++'s parsed headers,
# and there a source that lacks an include is found.
function(tutti_precompile_library library)
  if(TUTTI_PRECOMPILE AND TUTTI_SANITIZE)
    target_precompile_headers(${library} PRIVATE <algorithm> <atomic> <cstdint> <functional> <memory> <mutex> <optional>
      <string> <utility> <vector> <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/strings/str_join.h>
      <absl/time/time.h> <absl/types/span.h> ${ARGN})
  endif()
endfunction()
