/* Bad input leads to an error, never to a crash, and changes nothing. */
#include <frameyard.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int checks, failures;

#define EXPECT(status, call)                                                                        \
  do {                                                                                              \
    int found = (int)(call);                                                                        \
    checks++;                                                                                       \
    if (found != (int)(status)) {                                                                   \
      failures++;                                                                                   \
      fprintf(stderr, "line %d: %s, not %s: %s\n", __LINE__, fy_strerror(found), #status, #call);   \
    }                                                                                               \
  } while (0)
#define TRUE(condition) EXPECT(1, (condition) ? 1 : 0)

static void creation(void) {
  fy_config config = fy_config_default();
  fy_error error = fy_error_default();
  fy_yard *yard = NULL;
  struct {
    fy_config config;
    uint64_t later;
  } newer;

  EXPECT(FY_NULL_POINTER, fy_yard_create(NULL, &yard, &error));
  EXPECT(FY_NULL_POINTER, fy_yard_create(&config, NULL, &error));
  EXPECT(FY_BAD_ARGUMENT, fy_yard_create(&config, &yard, &error)); /* memory of 0 */
  TRUE(yard == NULL && error.status == FY_BAD_ARGUMENT && strlen(error.message) > 10);
  config.memory = (uint64_t)1 << 43;
  EXPECT(FY_NO_HOST_MEMORY, fy_yard_create(&config, &yard, &error));
  config.memory = (uint64_t)1 << 62;
  EXPECT(FY_BAD_ARGUMENT, fy_yard_create(&config, &yard, &error));
  config.memory = UINT64_MAX;
  EXPECT(FY_BAD_ARGUMENT, fy_yard_create(&config, &yard, &error));
  TRUE(yard == NULL);
  config.memory = (uint64_t)8 << 20;
  config.policy = "no-such-policy";
  EXPECT(FY_UNKNOWN_POLICY, fy_yard_create(&config, &yard, &error));
  config.policy = NULL;
  config.backing = 77;
  EXPECT(FY_BAD_ARGUMENT, fy_yard_create(&config, &yard, &error));
  config.backing = 0;
  config.huge_pages = 3;
  EXPECT(FY_BAD_ARGUMENT, fy_yard_create(&config, &yard, &error));
  config.huge_pages = 0;
  config.frame_size = 5000;
  EXPECT(FY_BAD_ARGUMENT, fy_yard_create(&config, &yard, &error));
  config.frame_size = 0;
  config.version = 0x00ff00;
  EXPECT(FY_BAD_VERSION, fy_yard_create(&config, &yard, &error));
  config.version = FY_VERSION;
  config.size = sizeof config - 1;
  EXPECT(FY_BAD_SIZE, fy_yard_create(&config, &yard, &error));
  config.size = 0;
  EXPECT(FY_BAD_SIZE, fy_yard_create(&config, &yard, &error));
  config.size = (size_t)-1;
  EXPECT(FY_BAD_SIZE, fy_yard_create(&config, &yard, &error));

  /* A newer header: what the library does not know must be 0. */
  memset(&newer, 0, sizeof newer);
  newer.config = fy_config_default();
  newer.config.size = sizeof newer;
  newer.config.memory = (uint64_t)8 << 20;
  newer.later = 1;
  EXPECT(FY_BAD_SIZE, fy_yard_create(&newer.config, &yard, &error));
  TRUE(strstr(error.message, "newer than the library") != NULL);
  newer.later = 0;
  EXPECT(FY_OK, fy_yard_create(&newer.config, &yard, &error));
  fy_yard_destroy(yard);
  fy_yard_destroy(NULL);

  /* An error with a wrong size is left alone. */
  error.size = 3;
  error.status = -1;
  EXPECT(FY_NULL_POINTER, fy_yard_create(NULL, &yard, &error));
  TRUE(error.status == -1);
}

static void null_pointers(fy_yard *yard) {
  fy_error error = fy_error_default();
  uint64_t frame = 7;
  size_t count;
  void *address;

  EXPECT(FY_NULL_POINTER, fy_alloc(NULL, 0, FY_GFP_KERNEL, &frame, &error));
  EXPECT(FY_NULL_POINTER, fy_alloc(NULL, 0, FY_GFP_KERNEL, &frame, NULL));
  EXPECT(FY_NULL_POINTER, fy_alloc(yard, 0, FY_GFP_KERNEL, NULL, &error));
  EXPECT(FY_NULL_POINTER, fy_alloc_on(yard, 0, 0, FY_GFP_KERNEL, NULL, &error));
  EXPECT(FY_NULL_POINTER, fy_alloc_exact(yard, 3, FY_GFP_KERNEL, NULL, &error));
  EXPECT(FY_NULL_POINTER, fy_alloc_bulk(yard, FY_GFP_KERNEL, NULL, 5, &count, &error));
  EXPECT(FY_NULL_POINTER, fy_alloc_bulk(yard, FY_GFP_KERNEL, &frame, 1, NULL, &error));
  EXPECT(FY_NULL_POINTER, fy_alloc_request(yard, NULL, NULL, &error));
  EXPECT(FY_NULL_POINTER, fy_free(NULL, 0, 0, &error));
  EXPECT(FY_NULL_POINTER, fy_free_bulk(yard, NULL, 1, &error));
  EXPECT(FY_NULL_POINTER, fy_free_range(NULL, 0, 1, &error));
  EXPECT(FY_NULL_POINTER, fy_split(NULL, 0, 0, &error));
  EXPECT(FY_NULL_POINTER, fy_address(yard, 0, NULL, &error));
  EXPECT(FY_NULL_POINTER, fy_frame_at(yard, NULL, &frame, &error));
  EXPECT(FY_NULL_POINTER, fy_frame_at(yard, &frame, NULL, &error));
  EXPECT(FY_NULL_POINTER, fy_frame_info(yard, 0x100000, NULL, &error));
  EXPECT(FY_NULL_POINTER, fy_yard_geometry(yard, NULL, &error));
  EXPECT(FY_NULL_POINTER, fy_yard_statistics(yard, NULL, &error));
  EXPECT(FY_NULL_POINTER, fy_yard_policy(yard, NULL, &error));
  EXPECT(FY_NULL_POINTER, fy_yard_set_policy(yard, NULL, &error));
  EXPECT(FY_NULL_POINTER, fy_yard_text(yard, FY_TEXT_VMSTAT, NULL, 10, &count, &error));
  EXPECT(FY_NULL_POINTER, fy_yard_text(yard, FY_TEXT_VMSTAT, NULL, 0, NULL, &error));
  EXPECT(FY_NULL_POINTER, fy_yard_drain(NULL, &error));
  EXPECT(FY_NULL_POINTER, fy_yard_drain_cpu(NULL, 0, &error));
  EXPECT(FY_NULL_POINTER, fy_yard_compact(NULL, 0, &error));
  EXPECT(FY_NULL_POINTER, fy_yard_validate(NULL, NULL));
  EXPECT(FY_NULL_POINTER, fy_yard_create_shared(NULL, NULL, &yard, &error));
  EXPECT(FY_NULL_POINTER, fy_yard_open_shared(NULL, NULL, &yard, &error));
  EXPECT(0, fy_error_message(NULL, NULL, 0));
  TRUE(frame == 7 && error.status == FY_NULL_POINTER);
  (void)address;
}

static void requests(fy_yard *yard) {
  fy_error error = fy_error_default();
  fy_request request = fy_request_default();
  fy_range range;
  uint64_t frame = 0;
  size_t count = 9;

  EXPECT(FY_BAD_ORDER, fy_alloc(yard, 11, FY_GFP_KERNEL, &frame, &error));
  TRUE(error.order == 11 && error.frame == FY_NO_FRAME && error.state == FY_NO_STATE);
  EXPECT(FY_BAD_ORDER, fy_alloc(yard, 256, FY_GFP_KERNEL, &frame, &error));
  EXPECT(FY_BAD_ORDER, fy_alloc(yard, UINT32_MAX, FY_GFP_KERNEL, &frame, &error));
  EXPECT(FY_BAD_FLAGS, fy_alloc(yard, 0, FY_GFP_MOVABLE | FY_GFP_RECLAIMABLE, &frame, &error));
  EXPECT(FY_BAD_FLAGS, fy_alloc(yard, 0, 0x80000000u, &frame, &error));
  EXPECT(FY_NO_SUCH_NODE, fy_alloc_on(yard, 500, 0, FY_GFP_KERNEL, &frame, &error));
  EXPECT(FY_NO_SUCH_NODE, fy_alloc_on(yard, 70000, 0, FY_GFP_KERNEL, &frame, &error));
  EXPECT(FY_BAD_ARGUMENT, fy_alloc_exact(yard, 0, FY_GFP_KERNEL, &frame, &error));
  EXPECT(FY_BAD_ORDER, fy_alloc_exact(yard, UINT64_MAX, FY_GFP_KERNEL, &frame, &error));
  EXPECT(FY_BAD_ARGUMENT, fy_alloc_bulk(yard, 0, &frame, SIZE_MAX, &count, &error));
  TRUE(count == 0 && frame == 0);
  EXPECT(FY_BAD_ARGUMENT, fy_alloc_request(yard, &request, &range, &error)); /* neither order nor count */
  request.order = 1;
  request.count = 1;
  EXPECT(FY_BAD_ARGUMENT, fy_alloc_request(yard, &request, &range, &error));
  request.order = FY_NO_ORDER;
  request.exact_place = 1;
  request.start = UINT64_MAX;
  EXPECT(FY_BAD_ARGUMENT, fy_alloc_request(yard, &request, &range, &error));
  request.start = 5;
  EXPECT(FY_BAD_FRAME, fy_alloc_request(yard, &request, &range, &error));
  request.exact_place = 0;
  request.align = 200;
  EXPECT(FY_BAD_ARGUMENT, fy_alloc_request(yard, &request, &range, &error));
  request.size = 1;
  EXPECT(FY_BAD_SIZE, fy_alloc_request(yard, &request, &range, &error));
  EXPECT(FY_UNKNOWN_POLICY, fy_yard_set_policy(yard, "", &error));
  EXPECT(FY_NO_SUCH_NODE, fy_yard_compact(yard, 9, &error));
  EXPECT(FY_BAD_ARGUMENT, fy_yard_text(yard, 99, NULL, 0, &count, &error));
  TRUE(fy_policy_name(1000) == NULL);
  TRUE(strcmp(fy_strerror(12345), "this number is no status") == 0);
}

static void frees(fy_yard *yard) {
  fy_error error = fy_error_default();
  fy_frame info = fy_frame_default();
  uint64_t block, two[2];
  char text[8];
  int local;

  EXPECT(FY_OK, fy_alloc(yard, 3, FY_GFP_KERNEL, &block, &error));
  EXPECT(FY_BAD_FRAME, fy_free(yard, 12345, 0, &error)); /* foreign */
  TRUE(error.frame == 12345 && error.order == 0);
  EXPECT(FY_BAD_FRAME, fy_free(yard, UINT64_MAX, 0, &error));
  EXPECT(FY_WRONG_ORDER, fy_free(yard, block, 2, &error));
  TRUE(error.state == FY_STATE_ALLOCATED && error.frame == block);
  EXPECT(FY_WRONG_ORDER, fy_free(yard, block + 1, 0, &error));
  TRUE(fy_free(yard, block, 4, &error) != FY_OK);
  TRUE(fy_free(yard, block, 300, &error) != FY_OK);
  EXPECT(FY_WRONG_ORDER, fy_free_range(yard, block, 7, &error));
  EXPECT(FY_BAD_ARGUMENT, fy_free_range(yard, block, 0, &error));
  EXPECT(FY_BAD_ARGUMENT, fy_free_range(yard, 2, UINT64_MAX, &error));
  EXPECT(FY_OK, fy_frame_info(yard, block + 1, &info, &error));
  TRUE(info.head == block && info.order == 3 && info.state == FY_STATE_ALLOCATED);
  EXPECT(FY_OK, fy_free(yard, block, 3, &error));
  EXPECT(FY_ALREADY_FREE, fy_free(yard, block, 3, &error));
  TRUE(fy_error_message(&error, NULL, 0) > 20);
  TRUE(fy_error_message(&error, text, sizeof text) > 20 && strcmp(text, "FY_ALRE") == 0);
  two[0] = 1;
  EXPECT(FY_OK, fy_alloc(yard, 0, FY_GFP_KERNEL, &two[1], &error));
  EXPECT(FY_BAD_FRAME, fy_free_bulk(yard, two, 2, &error)); /* the other one is freed */
  EXPECT(FY_ALREADY_FREE, fy_free(yard, two[1], 0, &error));
  EXPECT(FY_BAD_FRAME, fy_frame_at(yard, &local, &block, &error));
  EXPECT(FY_BAD_FRAME, fy_frame_info(yard, 3, &info, &error));
  EXPECT(FY_BAD_FRAME, fy_split(yard, 3, 0, &error));
}

static void shared(void) {
  fy_config config = fy_config_default();
  fy_error error = fy_error_default();
  fy_yard *yard, *other;
  char name[64];

  sprintf(name, "frameyard-c-%ld", (long)getpid());
  config.memory = (uint64_t)8 << 20;
  EXPECT(FY_NO_SUCH_NAME, fy_yard_open_shared(name, NULL, &yard, &error));
  EXPECT(FY_BAD_ARGUMENT, fy_yard_open_shared("", NULL, &yard, &error));
  config.backing = FY_BACKING_PHANTOM;
  EXPECT(FY_NOT_SUPPORTED, fy_yard_create_shared(name, &config, &yard, &error));
  config.backing = 0;
  EXPECT(FY_OK, fy_yard_create_shared(name, &config, &yard, &error));
  EXPECT(FY_NAME_IN_USE, fy_yard_create_shared(name, &config, &other, &error));
  TRUE(other == NULL);
  fy_yard_destroy(yard);
  EXPECT(FY_NO_SUCH_NAME, fy_yard_open_shared(name, NULL, &yard, &error));
  EXPECT(FY_SYSTEM, fy_yard_create_shared("/proc/no/such/folder", &config, &yard, &error));
  TRUE(error.system != 0);
}

int main(void) {
  fy_config config = fy_config_default();
  fy_yard *yard;

  creation();
  config.memory = (uint64_t)16 << 20;
  EXPECT(FY_OK, fy_yard_create(&config, &yard, NULL));
  null_pointers(yard);
  requests(yard);
  frees(yard);
  EXPECT(FY_OK, fy_yard_validate(yard, NULL));
  fy_yard_destroy(yard);
  shared();
  printf("%d checks of bad input, %d failed\n", checks, failures);
  return failures != 0;
}
