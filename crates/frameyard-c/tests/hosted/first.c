/* A first program, as in docs/guide/4-c.md: a yard of 64 MiB, one huge page, and a bad free. */
#include <frameyard.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  fy_config config = fy_config_default();
  fy_error error = fy_error_default();
  fy_yard *yard;
  uint64_t frame;
  void *bytes;

  config.memory = (uint64_t)64 << 20;
  if (fy_yard_create(&config, &yard, &error) != FY_OK) {
    fprintf(stderr, "no yard: %s\n", error.message);
    return 1;
  }
  if (fy_alloc(yard, 9, FY_GFP_USER | FY_GFP_ZERO, &frame, &error) != FY_OK ||
      fy_address(yard, frame, &bytes, &error) != FY_OK) {
    fprintf(stderr, "no block: %s\n", error.message);
    return 1;
  }
  memset(bytes, 42, (size_t)2 << 20);
  if (fy_free(yard, frame, 9, &error) != FY_OK) return 1;
  if (fy_free(yard, frame, 9, &error) != FY_ALREADY_FREE) return 1;
  printf("%s: %s\n", fy_strerror(error.status), error.message);
  fy_yard_destroy(yard);
  return 0;
}
