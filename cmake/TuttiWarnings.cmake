# Flags of Tutti's targets: strict warnings, no contraction of products and sums to fused multiply-adds by the compiler
# (results must have equal bits on every processor), and the sanitizers of TUTTI_SANITIZE.
add_library(tutti_flags INTERFACE)
target_compile_options(tutti_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -ffp-contract=off
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>)

if(TUTTI_SANITIZE)
  add_compile_options(-fsanitize=${TUTTI_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${TUTTI_SANITIZE})
endif()
