// A yard and its blocks as C++ objects.
#include <frameyard.h>

#include <cstdio>
#include <memory>
#include <stdexcept>

struct Destroy {
  void operator()(fy_yard *yard) const { fy_yard_destroy(yard); }
};
using Yard = std::unique_ptr<fy_yard, Destroy>;

static Yard make_yard(std::uint64_t memory) {
  fy_config config = fy_config_default();
  fy_error error = fy_error_default();
  fy_yard *yard = nullptr;
  config.memory = memory;
  if (fy_yard_create(&config, &yard, &error) != FY_OK) throw std::runtime_error(error.message);
  return Yard(yard);
}

int main() {
  Yard yard = make_yard(std::uint64_t{64} << 20);
  fy_request request = fy_request_default();
  fy_range range{};
  request.flags = FY_GFP_KERNEL;
  request.count = 100;
  if (fy_alloc_request(yard.get(), &request, &range, nullptr) != FY_OK || range.count != 100) return 1;
  if (fy_free_range(yard.get(), range.start, range.count, nullptr) != FY_OK) return 1;
  try {
    make_yard(1);
  } catch (const std::runtime_error &error) {
    std::printf("refused: %s\n", error.what());
    return fy_yard_validate(yard.get(), nullptr) == FY_OK ? 0 : 1;
  }
  return 1;
}
