// Standard input, output and error of a process that was started without some of them.
#ifndef TUTTI_BASE_STANDARD_DESCRIPTORS_H_
#define TUTTI_BASE_STANDARD_DESCRIPTORS_H_

namespace tutti {

// Opens /dev/null in the place of each closed descriptor from 0 to 2. Otherwise the next descriptor that anybody opens
// gets such a number, and what the program prints goes into a connection or into the memory of the ranks. Code that
// makes lasting descriptors therefore calls this first. A library may do so, because nobody owns a free number: a
// program that opens a file, or replaces standard output, does so as before. Thread-safe; costs two system calls where
// nothing is closed. Programs that this process starts inherit /dev/null, which serves them no worse than a closed
// descriptor.
void HoldStandardDescriptors();

}  // namespace tutti

#endif  // TUTTI_BASE_STANDARD_DESCRIPTORS_H_
