#include "transports/ended.h"

#include <gtest/gtest.h>

#include <vector>

namespace tutti {
namespace {

struct Note : Completion {
  explicit Note(std::vector<absl::Status>* notes) : told(notes) {
    done = [](Completion* self, const absl::Status& status) { static_cast<Note*>(self)->told->push_back(status); };
  }
  std::vector<absl::Status>* told;
};

TEST(EndedQueueTest, OwnersAreToldOnceInTheOrderOfTheEnds) {
  std::vector<absl::Status> told;
  Note first(&told), second(&told);
  EndedQueue queue;
  EXPECT_FALSE(queue.CallAll());
  queue.End(&first, absl::OkStatus());
  queue.End(&second, absl::InternalError("two"));
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_TRUE(queue.CallAll());
  EXPECT_TRUE(queue.empty());
  EXPECT_FALSE(queue.CallAll());
  EXPECT_EQ(told, (std::vector<absl::Status>{absl::OkStatus(), absl::InternalError("two")}));
}

TEST(EndedQueueTest, WhatEndsInACompletionIsForTheNextCall) {
  struct Posts : Completion {
    EndedQueue* queue = nullptr;
    int calls = 0;
  } posts;
  EndedQueue queue;
  posts.queue = &queue;
  posts.done = [](Completion* self, const absl::Status& status) {
    auto* const posting = static_cast<Posts*>(self);
    ++posting->calls;
    posting->queue->End(self, status);
  };
  queue.End(&posts, absl::OkStatus());
  for (int calls = 1; calls <= 3; ++calls) {
    EXPECT_TRUE(queue.CallAll());
    EXPECT_EQ(posts.calls, calls);
    EXPECT_EQ(queue.size(), 1u);
  }
}

}  // namespace
}  // namespace tutti
