# libtorch as one small imported target, `tutti_libtorch` (torch_cpu and c10), from an unpacked PyPI wheel or any
# libtorch. find_package(Torch) of a CUDA wheel demands a CUDA toolkit, which a CPU build does not need.
#
# libtorch is looked for in TUTTI_TORCH_DIR (the folder with include/ and lib/; cache or environment), then, for pip,
# in the Python environment that the package is installed into, otherwise in Torch_DIR. find_package(tutti COMPONENTS
# torch) of another project then looks beside the Python package, if Tutti was installed with that;
# tutti_torch_mistake says why it has found no libtorch. A build of Tutti that is no part of another project looks
# where `.ci/install torch` puts libtorch, in the environment TUTTI_TORCH_ENVIRONMENT (others may be beside it). When
# Tutti is built and no libtorch of a version that it can use is found, TUTTI_TORCH=ON is an error, and AUTO leaves
# out the adapter; with OFF it is not looked for.
set(TUTTI_TORCH_DIR "" CACHE PATH "libtorch's folder, the one with include/ and lib/")
if(NOT TUTTI_TORCH_DIR)
  set(TUTTI_TORCH_DIR "$ENV{TUTTI_TORCH_DIR}")
endif()
if(NOT CMAKE_FIND_PACKAGE_NAME)
  set(TUTTI_TORCH_ENVIRONMENT torch-2.11 CACHE STRING
    "The Python environment of `.ci/install` with libtorch, where TUTTI_TORCH_DIR is not given")
endif()

function(tutti_find_torch out)
  if(TUTTI_TORCH_DIR)
    set(${out} ${TUTTI_TORCH_DIR} PARENT_SCOPE)
    return()
  endif()
  if(SKBUILD AND PROJECT_IS_TOP_LEVEL AND NOT CMAKE_FIND_PACKAGE_NAME)
    # `pip install`: the torch of the environment that pip installs into, or of PYTHONPATH. pip hides the environment
    # from builds by a PYTHONPATH of its own, and the packages of `pip install --user` by PYTHONNOUSERSITE.
    foreach(hidden "" "--unset=PYTHONPATH;--unset=PYTHONNOUSERSITE")
      execute_process(COMMAND ${CMAKE_COMMAND} -E env ${hidden} ${Python_EXECUTABLE} -c
        "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
        OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      if(found)
        break()
      endif()
    endforeach()
    if(NOT found)
      message(FATAL_ERROR "the Python package is built against the torch that is installed, and ${Python_EXECUTABLE} \
has none: run `pip install torch` first. Where the build runs in an environment of its own (uv, python -m build), or \
torch lies on PYTHONPATH, give the option --no-build-isolation, or set TUTTI_TORCH_DIR to the folder \
site-packages/torch")
    endif()
    set(${out} ${found} PARENT_SCOPE)
    return()
  endif()
  if(Torch_DIR)
    get_filename_component(directory ${Torch_DIR}/../../.. ABSOLUTE)
    set(${out} ${directory} PARENT_SCOPE)
    return()
  endif()
  if(CMAKE_FIND_PACKAGE_NAME)
    cmake_path(GET tutti_prefix PARENT_PATH packages)  # site-packages, with torch and tutti
    if(EXISTS ${packages}/torch)
      set(${out} ${packages}/torch PARENT_SCOPE)
    endif()
    return()
  endif()
  if(NOT PROJECT_IS_TOP_LEVEL)
    return()
  endif()
  set(deps "$ENV{TUTTI_DEPS}")
  if(NOT deps)
    set(deps "$ENV{HOME}/.cache/tutti")
  endif()
  file(GLOB found ${deps}/${TUTTI_TORCH_ENVIRONMENT}/lib/python3*/site-packages/torch)
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# Ends this file where there is no libtorch that Tutti can use; `way_on` is what a build of Tutti may do about that.
macro(tutti_without_torch mistake way_on)
  if(CMAKE_FIND_PACKAGE_NAME)
    set(tutti_torch_mistake "${mistake}")
    return()
  endif()
  if(TUTTI_TORCH STREQUAL "AUTO" AND NOT TUTTI_TORCH_DIR)
    message(STATUS "Building without the torch::nn adapter: ${mistake}${way_on}")
    return()
  endif()
  message(FATAL_ERROR "${mistake}${way_on}")
endmacro()

set(tutti_torch_mistake "")
if(NOT TUTTI_TORCH OR TARGET tutti_libtorch)  # find_package(tutti) may be called again
  return()
endif()
set(tutti_torch_dir "")
tutti_find_torch(tutti_torch_dir)
if(NOT tutti_torch_dir OR NOT EXISTS ${tutti_torch_dir}/include/torch/csrc/api/include/torch/torch.h
   OR NOT EXISTS ${tutti_torch_dir}/lib/libtorch_cpu.so)
  string(REGEX REPLACE "(.+)" " in \\1" tutti_torch_place "${tutti_torch_dir}")
  set(tutti_torch_installer "")
  if(PROJECT_IS_TOP_LEVEL)
    set(tutti_torch_installer ", run `.ci/install torch`")
  endif()
  tutti_without_torch("libtorch not found${tutti_torch_place}: set TUTTI_TORCH_DIR to the folder that has include/ and \
lib/ (in a Python environment: site-packages/torch)" "${tutti_torch_installer}, or turn the adapter off with -DTUTTI_TORCH=OFF")
endif()

set(tutti_torch_line "")
if(EXISTS ${tutti_torch_dir}/version.py)
  file(STRINGS ${tutti_torch_dir}/version.py tutti_torch_line REGEX "^__version__ = ")
elseif(EXISTS ${tutti_torch_dir}/build-version)
  file(STRINGS ${tutti_torch_dir}/build-version tutti_torch_line LIMIT_COUNT 1)
endif()
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" TUTTI_TORCH_VERSION "${tutti_torch_line}")
if(NOT TUTTI_TORCH_VERSION)
  tutti_without_torch("libtorch in ${tutti_torch_dir} is of an unknown version, as version.py and build-version say \
none: the adapter needs 2.11 or newer" "")
elseif(TUTTI_TORCH_VERSION VERSION_LESS 2.11)
  tutti_without_torch("libtorch ${TUTTI_TORCH_VERSION} in ${tutti_torch_dir}: the adapter needs 2.11 or newer" "")
endif()
if(TUTTI_TORCH_DIR)
  # Kept, because a build runs CMake again by itself, perhaps without the variable in the environment. A folder that is
  # wrong is not kept, so that the variable can be corrected.
  set_property(CACHE TUTTI_TORCH_DIR PROPERTY VALUE "${TUTTI_TORCH_DIR}")
endif()
if(NOT tutti_FIND_QUIETLY)
  message(STATUS "libtorch ${TUTTI_TORCH_VERSION} in ${tutti_torch_dir}")
endif()

foreach(library c10 torch_cpu)
  add_library(tutti_${library} SHARED IMPORTED)
  set_target_properties(tutti_${library} PROPERTIES
    IMPORTED_LOCATION ${tutti_torch_dir}/lib/lib${library}.so
    INTERFACE_INCLUDE_DIRECTORIES "${tutti_torch_dir}/include;${tutti_torch_dir}/include/torch/csrc/api/include")
endforeach()
add_library(tutti_libtorch INTERFACE IMPORTED)
target_link_libraries(tutti_libtorch INTERFACE tutti_torch_cpu tutti_c10 Threads::Threads)

# libtorch_python, which Python's own process loads; only wheels have it.
if(EXISTS ${tutti_torch_dir}/lib/libtorch_python.so)
  add_library(tutti_torch_python SHARED IMPORTED)
  set_target_properties(tutti_torch_python PROPERTIES IMPORTED_LOCATION ${tutti_torch_dir}/lib/libtorch_python.so)
  set(TUTTI_TORCH_LIBRARIES_DIR ${tutti_torch_dir}/lib)
endif()
