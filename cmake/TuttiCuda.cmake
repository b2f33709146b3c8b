# CUDA, for what computes in the memory of GPUs (*.cu) and what allocates and copies it (src/memory/cuda_*). The core
# needs no CUDA: with TUTTI_CUDA=AUTO the build has CUDA's parts when there is an nvcc, with ON their absence is an
# error, with OFF nvcc is not looked for. Afterwards TUTTI_WITH_CUDA says whether the build has them; sources of `tutti`
# see a macro of this name.
#
# nvcc, of CUDA 12.1 or newer, is the one of the environment variable CUDACXX or of CMAKE_CUDA_COMPILER, otherwise the
# one in PATH, CUDA_HOME or /usr/local/cuda. Kernels are compiled for sm_80 and sm_90 and as PTX, which newer GPUs compile
# when they load it (CMAKE_CUDA_ARCHITECTURES chooses others).
set(TUTTI_CUDA AUTO CACHE STRING "Build what runs on GPUs: ON, OFF, or AUTO (when nvcc is found)")
set(TUTTI_WITH_CUDA OFF)

# Ends this file where there is no nvcc that Tutti can use.
macro(tutti_without_cuda mistake)
  if(TUTTI_CUDA STREQUAL "AUTO")
    message(STATUS "Building without CUDA: ${mistake}")
    return()
  endif()
  message(FATAL_ERROR "TUTTI_CUDA is ${TUTTI_CUDA}, but there is ${mistake}; or turn CUDA off with -DTUTTI_CUDA=OFF")
endmacro()

if(NOT TUTTI_CUDA)
  message(STATUS "Building without CUDA: TUTTI_CUDA is ${TUTTI_CUDA}")
  return()
endif()
if(TUTTI_SANITIZE AND TUTTI_CUDA STREQUAL "AUTO")
  message(STATUS "Building without CUDA: no sanitizer sees into kernels (-DTUTTI_CUDA=ON builds them all the same)")
  return()
endif()
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(TUTTI_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(TUTTI_NVCC)
    set(ENV{CUDACXX} ${TUTTI_NVCC})
  endif()
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  tutti_without_cuda("no nvcc that works, neither in PATH nor in CUDA_HOME nor in /usr/local/cuda: install the CUDA \
toolkit, or set CUDACXX to its nvcc")
endif()
execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version OUTPUT_VARIABLE version ERROR_QUIET)
string(REGEX MATCH "release ([0-9.]+)" version "${version}")
if(version AND CMAKE_MATCH_1 VERSION_LESS 12.1)
  tutti_without_cuda("no nvcc of CUDA 12.1 or newer, whose kernels take more than 4 KB of parameters: \
${CMAKE_CUDA_COMPILER} is of CUDA ${CMAKE_MATCH_1}. \
Install a newer CUDA toolkit, or set CUDACXX to its nvcc")
endif()

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)  # 90: code of sm_90, and PTX
endif()
if(CMAKE_CXX_COMPILER_LAUNCHER AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
enable_language(CUDA)  # the test of nvcc that this makes needs what is set below to be unset
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # CMake 3.25 does not know that nvcc has C++20
endif()
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
# `tutti` links CUDA::cudart_static by itself; programs that link `tutti` get no other runtime.
set(CMAKE_CUDA_RUNTIME_LIBRARY None)
find_package(CUDAToolkit REQUIRED)
if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 13)
  # Kernels take a seventh of the space. Drivers older than CUDA 12.4 cannot read them; those serve no runtime of CUDA 13.
  string(APPEND CMAKE_CUDA_FLAGS " -compress-mode=size")
endif()
set(TUTTI_WITH_CUDA ON)
message(STATUS "Building with CUDA ${CUDAToolkit_VERSION} (${CMAKE_CUDA_COMPILER}) for ${CMAKE_CUDA_ARCHITECTURES}")
