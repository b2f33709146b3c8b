# Headers that many sources include are parsed once for all sources, which saves a third of a test's compile time, and
# three quarters for a test that includes torch. Presets turn this on (TUTTI_PRECOMPILE); only a build without it is
# sure to find a source that lacks an include.
option(TUTTI_PRECOMPILE "Parse once what many sources include: standard headers, Abseil's, GoogleTest's and torch's" OFF)

# tutti_precompile(OWNER LIBRARIES LIBRARY... HEADERS HEADER... [OPTIONS OPTION...]): parses headers as those of OWNER,
# for tutti_use_precompiled. Programs that use the headers must be compiled with OPTIONS, too.
function(tutti_precompile owner)
  if(NOT TUTTI_PRECOMPILE)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LIBRARIES;HEADERS;OPTIONS")
  # OWNER is a program, like the targets that use the headers: a library is compiled with other flags.
  file(CONFIGURE OUTPUT ${owner}.cc CONTENT "int main() { return 0; }\n")
  add_executable(${owner} EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/${owner}.cc)
  target_link_libraries(${owner} PRIVATE ${arg_LIBRARIES})
  target_compile_options(${owner} PRIVATE ${arg_OPTIONS})
  target_precompile_headers(${owner} PRIVATE ${arg_HEADERS})
endfunction()

# tutti_compile_together(TARGET COUNT): COUNT sources at a time are one translation unit, which saves four fifths of the
# time where sources use templates that are large (torch, CLI11): each is instantiated once for COUNT sources. Names in
# the anonymous namespaces of TARGET's sources must differ.
function(tutti_compile_together target count)
  if(TUTTI_PRECOMPILE)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${count})
  endif()
endfunction()

# tutti_use_precompiled(PROGRAM OWNER): PROGRAM's sources start from OWNER's headers, if OWNER has been made.
function(tutti_use_precompiled program owner)
  if(TARGET ${owner})
    target_precompile_headers(${program} REUSE_FROM ${owner})
  endif()
endfunction()

# tutti_precompile_library(LIBRARY HEADER...): LIBRARY's sources start from the headers that most of them include, and
# from HEADERs.
function(tutti_precompile_library library)
  if(TUTTI_PRECOMPILE)
    target_precompile_headers(${library} PRIVATE <algorithm> <atomic> <cstdint> <functional> <memory> <mutex> <optional>
      <string> <utility> <vector> <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/strings/str_join.h>
      <absl/time/time.h> <absl/types/span.h> ${ARGN})
  endif()
endfunction()
