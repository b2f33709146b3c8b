# Flags of our own targets: strict warnings, no fused multiply-add behind our back (results must have the same bits on
# every processor), and the sanitizers of TUTTI_SANITIZE.
add_library(tutti_flags INTERFACE)
target_compile_options(tutti_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -ffp-contract=off
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>)

if(TUTTI_SANITIZE)
  add_compile_options(-fsanitize=${TUTTI_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${TUTTI_SANITIZE})
endif()
