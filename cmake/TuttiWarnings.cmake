# Flags of Tutti's targets: strict warnings, no contraction of products and sums to fused multiply-adds by the compiler
# (results must have equal bits on every processor), and the sanitizers of TUTTI_SANITIZE. nvcc's --fmad is the same
# contraction in kernels; --expt-relaxed-constexpr lets kernels call constexpr functions of the standard library.
add_library(tutti_flags INTERFACE)
set(tutti_flags_of_cxx -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -ffp-contract=off)
string(REPLACE ";" "," tutti_flags_of_nvccs_host "${tutti_flags_of_cxx}")
target_compile_options(tutti_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${tutti_flags_of_cxx}>"
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wthread-safety>
  "$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;--expt-relaxed-constexpr;-Xcompiler=${tutti_flags_of_nvccs_host}>")

if(TUTTI_SANITIZE)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${TUTTI_SANITIZE};-fno-omit-frame-pointer;-g1>")
  # The data that sanitizers compile in has millions of addresses. A program that may be loaded anywhere adds its own to
  # each of them before it starts, which took half of the time of `tutti --version`.
  add_link_options(-fsanitize=${TUTTI_SANITIZE} $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
endif()
