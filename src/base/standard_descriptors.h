// Standard input, output and error of a process that was started without some of them.
#ifndef TUTTI_BASE_STANDARD_DESCRIPTORS_H_
#define TUTTI_BASE_STANDARD_DESCRIPTORS_H_

namespace tutti {

// Opens /dev/null in the place of each closed descriptor from 0 to 2. Otherwise the next descriptor that anybody opens
// gets a number from 0 to 2, and what the program prints goes into a connection or into the memory of the ranks. Code
// that makes lasting descriptors therefore calls HoldStandardDescriptors first. A library may open these descriptors,
// because nobody owns a free number: a program can still open files and replace standard output. Thread-safe; costs two
// system calls where nothing is closed. Programs that this process starts inherit /dev/null, which serves them no worse
// than a closed descriptor.
void HoldStandardDescriptors();

}  // namespace tutti

#endif  // TUTTI_BASE_STANDARD_DESCRIPTORS_H_
