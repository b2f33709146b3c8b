// The beginning and end of a module's backward(), as the hooks of its gradients see it.
#ifndef TUTTI_TORCH_BACKWARD_SCOPE_H_
#define TUTTI_TORCH_BACKWARD_SCOPE_H_

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <memory>

namespace tutti::nn {

// To be called in the hook of a parameter's gradient: whether autograd also adds this gradient to p.grad(). backward()
// does; torch::autograd::grad does not.
inline bool AccumulatesGradient() {
  const auto* const nodes = torch::autograd::get_current_graph_task_exec_info();
  if (nodes == nullptr || nodes->empty()) return true;  // backward() without a list of inputs adds every gradient
  const auto node = nodes->find(torch::autograd::get_current_node().get());
  return node != nodes->end() && node->second.needed_;
}

// The scope of one backward(). A node of the graph may run a backward() of its own, as a checkpointed segment does:
// such a nested backward() is a part of the outer one, and ends nothing as long as gradients are missing. All functions
// are called on the thread of backward().
class BackwardScope {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // Called when the first hook runs; an exception leaves the scope closed.
    virtual void BeginBackward() = 0;
    virtual bool HasAllGradients() = 0;
    // Called when backward() is about to return.
    virtual void FinishBackward() = 0;
    // Called when another backward() begins after an exception has ended the backward() that had begun.
    virtual void CancelBackward() = 0;
  };

  explicit BackwardScope(Owner& owner) : owner_(owner) {}
  BackwardScope(const BackwardScope&) = delete;
  BackwardScope& operator=(const BackwardScope&) = delete;

  // Whether an exception has ended the backward() that opened the scope.
  bool abandoned() const { return open_ && !continues_ && end_.expired(); }
  // Whether a nested backward() has ended while gradients are missing, and no gradient has come since.
  bool continues() const { return open_ && continues_; }

  // To be called by every hook.
  void Enter() {
    const int task = torch::autograd::get_current_graph_task_id();
    if (task == task_) return;
    if (abandoned()) {
      Close();
      owner_.CancelBackward();
    }
    if (open_ && !end_.expired()) return;  // nested in the backward() that will close the scope
    if (!open_) owner_.BeginBackward();
    // Autograd drops the callback, and with it `end`, also when an exception ends the backward.
    const auto end = std::make_shared<bool>();
    torch::autograd::Engine::get_default_engine().queue_callback([this, end] { EndTask(); });
    end_ = end;
    task_ = task;
    open_ = true;
    continues_ = false;
  }

  void Finish() {
    Close();
    owner_.FinishBackward();
  }

 private:
  static constexpr int kNoTask = -1;

  void EndTask() {
    const bool nested = torch::autograd::get_current_node() != nullptr;
    if (!nested || owner_.HasAllGradients()) return Finish();
    task_ = kNoTask;
    end_.reset();
    continues_ = true;
  }

  void Close() {
    open_ = continues_ = false;
    task_ = kNoTask;
    end_.reset();
  }

  Owner& owner_;
  bool open_ = false;
  bool continues_ = false;
  int task_ = kNoTask;       // autograd's number of the backward that will close the scope
  std::weak_ptr<bool> end_;  // lives as long as that backward
};

}  // namespace tutti::nn

#endif  // TUTTI_TORCH_BACKWARD_SCOPE_H_
