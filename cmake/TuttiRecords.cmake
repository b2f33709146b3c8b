# What the sources of schedules, codecs, algorithms and peer selections say of themselves, for the lists that CMake writes
# of them: of Tutti's own (TuttiManifest.cmake) and of extensions (TuttiExtensions.cmake).

# tutti_read_record(FILE): sets, from the macro that defines the record of FILE,
#   record_macro  TUTTI_SCHEDULE(all_gather, mine)
#   record_kind   SCHEDULE, CODEC, ALGORITHM or PEER_SELECTION
#   record_type   tutti::Schedule, …
#   record_list   the field of tutti::Extension with the records of this kind: schedules, …
#   record_name   "mine"; record_collective, of a schedule: "all_gather"
#   record_symbol the variable: tutti_schedule_all_gather_mine
# A file without a record, with several, or with a `.name` or `.collective` that is not the macro's is an error.
function(tutti_read_record file)
  file(READ ${file} text)
  string(REGEX REPLACE "//[^\n]*" "" text "${text}")
  string(REGEX MATCHALL "TUTTI_(SCHEDULE|CODEC|ALGORITHM|PEER_SELECTION)\\([^)]*\\)" macros "${text}")
  list(LENGTH macros count)
  if(NOT count EQUAL 1)
    string(JOIN " and " found ${macros})
    if(count EQUAL 0)
      set(found "none")
    endif()
    message(FATAL_ERROR "${file}: expected one record, TUTTI_SCHEDULE(collective, name) = {…}, TUTTI_CODEC(name) = {…}, \
TUTTI_ALGORITHM(name) = {…} or TUTTI_PEER_SELECTION(name) = {…}; found ${found}")
  endif()
  string(REGEX MATCH "^TUTTI_([A-Z_]+)\\((.*)\\)$" matched "${macros}")
  set(kind ${CMAKE_MATCH_1})
  string(REGEX REPLACE "[ \n]" "" arguments "${CMAKE_MATCH_2}")
  string(REPLACE "," ";" arguments "${arguments}")
  set(expected "^[a-z][a-z0-9_]*$")
  if(kind STREQUAL "SCHEDULE")
    set(expected "^[a-z_]+;[a-z][a-z0-9_]*$")
  endif()
  if(NOT arguments MATCHES "${expected}")
    message(FATAL_ERROR "${file}: ${macros}: expected a name of lower-case letters, digits and _ (for a schedule, a \
collective and a name: TUTTI_SCHEDULE(all_gather, mine))")
  endif()
  list(POP_BACK arguments name)

  string(REGEX MATCH "(\\.name|kName) = \"([^\"]*)\"" matched "${text}")  # kName is a codec's
  if(matched AND NOT CMAKE_MATCH_2 STREQUAL name)
    message(FATAL_ERROR "${file}: ${macros} has ${matched}; expected ${CMAKE_MATCH_1} = \"${name}\"")
  endif()
  string(REGEX MATCH "\\.collective = [a-z:]*Collective::k([A-Za-z]+)" matched "${text}")
  if(kind STREQUAL "SCHEDULE" AND matched)
    string(REGEX REPLACE "([A-Z])" "_\\1" collective "${CMAKE_MATCH_1}")
    string(TOLOWER "${collective}" collective)
    string(REGEX REPLACE "^_" "" collective "${collective}")
    if(NOT collective STREQUAL arguments)
      message(FATAL_ERROR "${file}: ${macros} has ${matched}, which is ${collective}")
    endif()
  endif()

  string(TOLOWER "${kind}" lower)
  string(JOIN "_" symbol tutti ${lower} ${arguments} ${name})
  set(type_of_SCHEDULE tutti::Schedule)
  set(type_of_CODEC tutti::Codec)
  set(type_of_ALGORITHM tutti::Algorithm)
  set(type_of_PEER_SELECTION tutti::PeerSelection)
  set(record_macro "${macros}" PARENT_SCOPE)
  set(record_kind ${kind} PARENT_SCOPE)
  set(record_type ${type_of_${kind}} PARENT_SCOPE)
  set(record_list ${lower}s PARENT_SCOPE)
  set(record_name ${name} PARENT_SCOPE)
  set(record_collective "${arguments}" PARENT_SCOPE)
  set(record_symbol ${symbol} PARENT_SCOPE)
  # What the file says is read again when the file has changed.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
endfunction()
