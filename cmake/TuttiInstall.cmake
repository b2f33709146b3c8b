# What `cmake --install` installs: headers, the library, the command, and files for find_package(tutti) and pkg-config.
# The component `development` is what a C++ program needs to be built, and `command` is the command; the Python wheel
# contains both.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)
install(TARGETS tutti EXPORT tuttiTargets COMPONENT development)
if(TARGET tutti_command)
  set(command_dir ${CMAKE_INSTALL_BINDIR})
  if(SKBUILD AND PROJECT_IS_TOP_LEVEL)
    set(command_dir ${SKBUILD_SCRIPTS_DIR})  # what pip puts into the folder bin/ of the Python environment
  endif()
  install(TARGETS tutti_command DESTINATION ${command_dir} COMPONENT command)
endif()
set(headers include/tutti)
if(TARGET tutti_torch)
  install(TARGETS tutti_torch EXPORT tuttiTargets COMPONENT development)
  list(APPEND headers bindings/torch/include/tutti)
endif()
install(DIRECTORY ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development FILES_MATCHING PATTERN "*.h")
install(EXPORT tuttiTargets NAMESPACE tutti:: DESTINATION ${package_dir} COMPONENT development)

# The runtime of CUDA, as a file beside libtutti.a: NVIDIA lets programs distribute it.
set(tutti_cudart "")
set(tutti_cudart_libs "")
if(TUTTI_WITH_CUDA)
  get_target_property(cudart CUDA::cudart_static IMPORTED_LOCATION)
  cmake_path(GET cudart FILENAME cudart_name)
  install(FILES ${cudart} DESTINATION ${CMAKE_INSTALL_LIBDIR}/tutti COMPONENT development)
  set(tutti_cudart ${CMAKE_INSTALL_LIBDIR}/tutti/${cudart_name})
  set(tutti_cudart_libs " \${libdir}/tutti/${cudart_name} -lrt")
endif()

configure_package_config_file(cmake/tuttiConfig.cmake.in ${PROJECT_BINARY_DIR}/generated/tuttiConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/tuttiConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/generated/tuttiConfig.cmake ${PROJECT_BINARY_DIR}/generated/tuttiConfigVersion.cmake
  cmake/TuttiTorch.cmake cmake/TuttiExtensions.cmake cmake/TuttiRecords.cmake DESTINATION ${package_dir} COMPONENT development)

# tutti is a static library: a program that links it needs all libraries that it links.
set(tutti_pc_prefix ${CMAKE_INSTALL_PREFIX})
if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")  # then the prefix may be moved
  file(RELATIVE_PATH prefix_from_pc /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  string(REGEX REPLACE "/$" "" prefix_from_pc ${prefix_from_pc})
  set(tutti_pc_prefix "\${pcfiledir}/${prefix_from_pc}")
endif()
foreach(folder LIBDIR INCLUDEDIR)  # relative to the prefix, or absolute
  string(TOLOWER ${folder} name)
  cmake_path(APPEND tutti_pc_${name} "\${prefix}" ${CMAKE_INSTALL_${folder}})
endforeach()
configure_file(cmake/tutti.pc.in ${PROJECT_BINARY_DIR}/generated/tutti.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/generated/tutti.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
  COMPONENT development)
