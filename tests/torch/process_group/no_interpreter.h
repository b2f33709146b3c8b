// A lock in place of the interpreter's, for tests of process groups in programs that have no interpreter.
#ifndef TUTTI_TESTS_TORCH_PROCESS_GROUP_NO_INTERPRETER_H_
#define TUTTI_TESTS_TORCH_PROCESS_GROUP_NO_INTERPRETER_H_

namespace tutti::dist {

// This thread has the lock while an InterpreterLock lives, but for the time that a WithoutInterpreterLock
// (bindings/torch/process_group/interrupt.h) lives, too.
class InterpreterLock {
 public:
  InterpreterLock();
  ~InterpreterLock();
  InterpreterLock(const InterpreterLock&) = delete;
  InterpreterLock& operator=(const InterpreterLock&) = delete;
};

}  // namespace tutti::dist

#endif  // TUTTI_TESTS_TORCH_PROCESS_GROUP_NO_INTERPRETER_H_
