# libtorch as one small imported target, `tutti_libtorch` (torch_cpu and c10), from an unpacked PyPI wheel or any libtorch.
# find_package(Torch) of a CUDA wheel wants a CUDA toolkit, which a CPU build has no use for.
#
# Looked for in TUTTI_TORCH_DIR (the folder with include/ and lib/; cache or environment), then Torch_DIR, then where
# `.ci/install torch` puts it. TUTTI_TORCH=ON: not finding it is an error; AUTO: the adapter is left out; OFF: not looked for.
set(TUTTI_TORCH_DIR "$ENV{TUTTI_TORCH_DIR}" CACHE PATH "libtorch's folder, the one with include/ and lib/")

function(tutti_find_torch out)
  if(TUTTI_TORCH_DIR)
    set(${out} ${TUTTI_TORCH_DIR} PARENT_SCOPE)
    return()
  endif()
  if(Torch_DIR)
    get_filename_component(directory ${Torch_DIR}/../../.. ABSOLUTE)
    set(${out} ${directory} PARENT_SCOPE)
    return()
  endif()
  set(deps "$ENV{TUTTI_DEPS}")
  if(NOT deps)
    set(deps "$ENV{HOME}/.cache/tutti")
  endif()
  file(GLOB candidates ${deps}/torch-*/lib/python3*/site-packages/torch)
  list(SORT candidates COMPARE NATURAL ORDER DESCENDING)
  if(candidates)
    list(GET candidates 0 newest)
    set(${out} ${newest} PARENT_SCOPE)
  endif()
endfunction()

if(NOT TUTTI_TORCH)
  return()
endif()
tutti_find_torch(torch_dir)
if(NOT torch_dir OR NOT EXISTS ${torch_dir}/include/torch/csrc/api/include/torch/torch.h
   OR NOT EXISTS ${torch_dir}/lib/libtorch_cpu.so)
  string(REGEX REPLACE "(.+)" " in \\1" place "${torch_dir}")
  set(message "libtorch not found${place}: run `.ci/install torch`, or set TUTTI_TORCH_DIR to the folder that has \
include/ and lib/ (in a Python environment: site-packages/torch), or turn the adapter off with -DTUTTI_TORCH=OFF")
  if(TUTTI_TORCH STREQUAL "AUTO" AND NOT TUTTI_TORCH_DIR)
    message(STATUS "Building without the torch::nn adapter: ${message}")
    return()
  endif()
  message(FATAL_ERROR "${message}")
endif()

if(EXISTS ${torch_dir}/version.py)
  file(STRINGS ${torch_dir}/version.py line REGEX "^__version__ = ")
elseif(EXISTS ${torch_dir}/build-version)
  file(STRINGS ${torch_dir}/build-version line LIMIT_COUNT 1)
endif()
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" TUTTI_TORCH_VERSION "${line}")
if(TUTTI_TORCH_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "libtorch ${TUTTI_TORCH_VERSION} in ${torch_dir}: the adapter needs 2.11 or newer")
endif()
message(STATUS "libtorch ${TUTTI_TORCH_VERSION} in ${torch_dir}")

foreach(library c10 torch_cpu)
  add_library(tutti_${library} SHARED IMPORTED)
  set_target_properties(tutti_${library} PROPERTIES
    IMPORTED_LOCATION ${torch_dir}/lib/lib${library}.so
    INTERFACE_INCLUDE_DIRECTORIES "${torch_dir}/include;${torch_dir}/include/torch/csrc/api/include")
endforeach()
add_library(tutti_libtorch INTERFACE IMPORTED)
target_link_libraries(tutti_libtorch INTERFACE tutti_torch_cpu tutti_c10 Threads::Threads)
