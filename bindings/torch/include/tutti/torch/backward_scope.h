// The beginning and end of a module's backward(), as the hooks of its gradients see it.
#ifndef TUTTI_TORCH_BACKWARD_SCOPE_H_
#define TUTTI_TORCH_BACKWARD_SCOPE_H_

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

namespace tutti::nn {

// To be called in the hook of a parameter's gradient: whether autograd also adds this gradient to p.grad(). backward()
// does; torch::autograd::grad does not.
inline bool AccumulatesGradient() {
  const auto* const nodes = torch::autograd::get_current_graph_task_exec_info();
  if (nodes == nullptr || nodes->empty()) return true;  // backward() without a list of inputs adds every gradient
  const auto node = nodes->find(torch::autograd::get_current_node().get());
  return node != nodes->end() && node->second.needed_;
}

// Tells whether a node of autograd's graph has gone. Torch 2.11 holds nodes by std::shared_ptr, torch 2.15 by
// c10::intrusive_ptr.
template <typename Node>
std::weak_ptr<Node> WeakPointerTo(const std::shared_ptr<Node>& node) {
  return node;
}
template <typename Node>
c10::weak_intrusive_ptr<Node> WeakPointerTo(const c10::intrusive_ptr<Node>& node) {
  return c10::weak_intrusive_ptr<Node>(node);
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
    // The calls when backward() is about to return. An exception of the first counts as one that has ended backward();
    // an exception of the second leaves the scope closed.
    virtual void ContributeUnused() = 0;
    virtual void FinishBackward() = 0;
    // Called when another backward() begins after an exception has ended the backward() that had begun.
    virtual void CancelBackward() = 0;
    // Returns an object that has to outlive the backward() that begins, or null; autograd drops the object when the
    // backward() is over.
    virtual std::shared_ptr<void> KeepForBackward() = 0;
  };

  explicit BackwardScope(Owner& owner) : owner_(owner) {}
  BackwardScope(const BackwardScope&) = delete;
  BackwardScope& operator=(const BackwardScope&) = delete;

  // Whether an exception has ended the backward() that opened the scope. To be called when no backward() runs; from
  // then on no later backward() is taken for the rest of an outer one.
  bool Abandoned() {
    if (!open_ || !end_.expired()) return false;
    outer_.reset();  // the outer backward() of a nested one has ended, too
    return true;
  }

  // To be called in a hook: whether an exception has ended the backward() whose end would close the scope. Where a
  // nested backward() has ended and its outer one is awaited, the same is known once the graph of the outer one is
  // gone.
  bool FollowsAbandoned() const { return open_ && end_.expired() && !MayContinue(); }

  // To be called by every hook.
  void Enter() {
    const int task = torch::autograd::get_current_graph_task_id();
    if (task == task_) return;
    if (FollowsAbandoned()) {
      Close();
      owner_.CancelBackward();
    }
    if (open_ && !end_.expired()) return;  // nested in the backward() that will close the scope
    if (!open_) owner_.BeginBackward();
    // Autograd drops the callback, and with it `end`, also when an exception ends the backward.
    const auto end = std::make_shared<std::shared_ptr<void>>(owner_.KeepForBackward());
    torch::autograd::Engine::get_default_engine().queue_callback([this, end] {
      EndTask();
      end->reset();  // perhaps the end of this scope
    });
    end_ = end;
    task_ = task;
    open_ = true;
    outer_.reset();
  }

 private:
  static constexpr int kNoTask = -1;

  // The hook of a node of the outer backward() that runs after a nested one.
  struct OuterHook : torch::autograd::FunctionPreHook {
    explicit OuterHook(std::weak_ptr<BackwardScope*> its_scope) : scope(std::move(its_scope)) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
      // A leaf has this hook in backwards of other modules, too, which must not open the scope.
      if (const auto waiting = scope.lock(); waiting != nullptr && (*waiting)->MayContinue()) (*waiting)->Enter();
      return gradients;
    }

    std::weak_ptr<BackwardScope*> scope;  // while the scope waits for the outer backward()
  };

  using NodePointer = decltype(torch::autograd::get_current_node());

  // Whether a nested backward() has ended and its outer one may go on.
  bool MayContinue() const { return outer_ != nullptr && caller_.has_value() && !caller_->expired(); }

  void EndTask() {
    const NodePointer caller = torch::autograd::get_current_node();
    if (caller != nullptr && !owner_.HasAllGradients()) return WaitForOuter(caller);
    owner_.ContributeUnused();
    Close();
    owner_.FinishBackward();
  }

  // Lets the nodes to which `caller`, the node that ran the nested backward(), hands its gradients enter the scope:
  // autograd shows a callback nothing of the outer backward() but this node.
  void WaitForOuter(const NodePointer& caller) {
    task_ = kNoTask;
    end_.reset();
    outer_ = std::make_shared<BackwardScope*>(this);
    caller_.emplace(WeakPointerTo(caller));
    for (const torch::autograd::Edge& edge : caller->next_edges()) {
      if (!edge.is_valid()) continue;
      auto& hooks = edge.function->pre_hooks();
      // A node that belongs to a leaf, or to a graph that is kept, has the hook of an earlier backward().
      const auto dead = std::find_if(hooks.begin(), hooks.end(), [](const auto& hook) {
        const auto* const outer = dynamic_cast<const OuterHook*>(hook.get());
        return outer != nullptr && outer->scope.expired();
      });
      auto alive = std::make_unique<OuterHook>(outer_);
      if (dead == hooks.end()) {
        edge.function->add_pre_hook(std::move(alive));
      } else {
        *dead = std::move(alive);
      }
    }
  }

  void Close() {
    open_ = false;
    task_ = kNoTask;
    end_.reset();
    outer_.reset();
  }

  Owner& owner_;
  bool open_ = false;
  int task_ = kNoTask;                     // autograd's number of the backward that will close the scope
  std::weak_ptr<void> end_;                // lives as long as that backward
  std::shared_ptr<BackwardScope*> outer_;  // while a nested backward() has ended, and its outer one is not known yet
  // The node of the outer one that ran the nested one.
  std::optional<decltype(WeakPointerTo(std::declval<NodePointer>()))> caller_;
};

}  // namespace tutti::nn

#endif  // TUTTI_TORCH_BACKWARD_SCOPE_H_
