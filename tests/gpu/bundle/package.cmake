# The Python package of the bundle, in build/<preset>/bundled_python: an extension module that finds its libraries in the
# bundle, for the Python of the machine with a GPU, where its torch is of the version that is built against.
set(TUTTI_BUNDLE_PYTHON "" CACHE FILEPATH
  "A Python with headers, of the minor version that the bundle's machine has; empty: the Python that the package is for")
if(NOT TARGET tutti_python)
  return()
endif()

set(package ${PROJECT_BINARY_DIR}/bundled_python/tutti)
set(bundled_python ${TUTTI_PYTHON_EXECUTABLE})
set(python_with_torch ${TUTTI_PYTHON_EXECUTABLE})  # in which the package of the bundle can be tried here; empty: in none
if(TUTTI_BUNDLE_PYTHON)
  set(bundled_python ${TUTTI_BUNDLE_PYTHON})
  set(python_with_torch "")
endif()
execute_process(COMMAND ${bundled_python} -c
  "import sysconfig as s; print(s.get_path('include'), s.get_config_var('EXT_SUFFIX'), sep=';')"
  OUTPUT_VARIABLE answer RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE)
list(POP_FRONT answer headers suffix)
if(failed OR NOT EXISTS ${headers}/Python.h)
  message(FATAL_ERROR "TUTTI_BUNDLE_PYTHON is ${bundled_python}, which is no Python, or has no Python.h in '${headers}': \
name a Python that was installed with its headers")
endif()

file(GLOB stale ${package}/_C.*)  # of a Python that TUTTI_BUNDLE_PYTHON named before
list(REMOVE_ITEM stale ${package}/_C${suffix})
if(stale)
  file(REMOVE ${stale})
endif()

if(TUTTI_BUNDLE_PYTHON)
  get_target_property(of_interpreter tutti_python SOURCES)
  list(FILTER of_interpreter INCLUDE REGEX "\\.cc$")
else()
  set(of_interpreter $<TARGET_OBJECTS:tutti_python>)
endif()
add_library(tutti_bundled_python MODULE ${of_interpreter} $<TARGET_OBJECTS:tutti_process_group>)
target_include_directories(tutti_bundled_python PRIVATE ${PROJECT_SOURCE_DIR})
target_include_directories(tutti_bundled_python SYSTEM PRIVATE ${headers})
target_link_libraries(tutti_bundled_python PRIVATE tutti_torch tutti_flags tutti_torch_python absl::inlined_vector)
# torch is in the process before this module. An RPATH holds for libucp, which is loaded late, too, but not for what libucp
# needs: gpu_suite names the folder.
target_link_options(tutti_bundled_python PRIVATE -Wl,--exclude-libs,ALL -Wl,--disable-new-dtags)
set_target_properties(tutti_bundled_python PROPERTIES PREFIX "" OUTPUT_NAME _C SUFFIX ${suffix}
  LIBRARY_OUTPUT_DIRECTORY ${package} BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH $ORIGIN/../../bin/libraries)
add_dependencies(gpu_bundle tutti_bundled_python)
