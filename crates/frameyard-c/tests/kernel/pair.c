/* Allocates and frees a block, repeatedly, for counting instructions: `pair NUMBER` makes NUMBER / 64 pairs of the order NUMBER % 64. */
#include "freestanding.h"

int kernel(uint64_t argument) {
  fy_memory range = {FIRST_FRAME, FRAMES, 0, 0};
  fy_core_config config = fy_core_config_default();
  fy_platform_ops ops = kernel_ops();
  uint32_t order = (uint32_t)(argument % 64);
  uint64_t frame, pairs = argument / 64;
  fy_yard *yard;

  config.memory = &range;
  config.memory_ranges = 1;
#ifdef FY_LOCKS
  ops.end_sequences = NULL;
#endif
  if (fy_core_create(&ops, &config, &yard, NULL) != FY_OK) return 1;
  while (pairs-- > 0) {
    if (fy_alloc(yard, order, FY_GFP_USER, &frame, NULL) != FY_OK) return 1;
    if (fy_free(yard, frame, order, NULL) != FY_OK) return 1;
  }
  return 0;
}
