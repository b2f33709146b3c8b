// The environment of this process as a value, so that what reads it can be tested with tables.
#ifndef TUTTI_BASE_ENVIRONMENT_H_
#define TUTTI_BASE_ENVIRONMENT_H_

#include <map>
#include <string>

namespace tutti {

using Environment = std::map<std::string, std::string, std::less<>>;

Environment ProcessEnvironment();

}  // namespace tutti

#endif  // TUTTI_BASE_ENVIRONMENT_H_
