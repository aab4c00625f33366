/* Bad input leads to an error, never to a crash, and changes nothing. */
#include <frameyard.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int checks, failures;

/* The statuses that calls have returned. */
static char seen[100];

#define EXPECT(status, call)                                                                        \
  do {                                                                                              \
    int found = (int)(call);                                                                        \
    checks++;                                                                                       \
    seen[found] = 1;                                                                                \
    if (found != (int)(status)) {                                                                   \
      failures++;                                                                                   \
      fprintf(stderr, "line %d: %s, not %s: %s\n", __LINE__, fy_strerror(found), #status, #call);   \
    }                                                                                               \
  } while (0)
#define TRUE(condition)                                               \
  do {                                                                \
    checks++;                                                         \
    if (!(condition)) {                                               \
      failures++;                                                     \
      fprintf(stderr, "line %d: not true: %s\n", __LINE__, #condition); \
    }                                                                 \
  } while (0)

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
  config.device_space = UINT64_MAX;
  EXPECT(FY_BAD_ARGUMENT, fy_yard_create(&config, &yard, &error));
  config.device_space = 0;
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
  uint64_t frame = 7, own;
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
  EXPECT(FY_NULL_POINTER, fy_split_at(NULL, 0, &error));
  EXPECT(FY_NULL_POINTER, fy_join(NULL, 0, 0, &error));
  EXPECT(FY_NULL_POINTER, fy_address(yard, 0, NULL, &error));
  EXPECT(FY_NULL_POINTER, fy_frame_at(yard, NULL, &frame, &error));
  EXPECT(FY_NULL_POINTER, fy_frame_at(yard, &frame, NULL, &error));
  EXPECT(FY_OK, fy_alloc(yard, 0, FY_GFP_KERNEL, &own, &error));
  EXPECT(FY_NULL_POINTER, fy_frame_info(yard, own, NULL, &error));
  EXPECT(FY_OK, fy_free(yard, own, 0, &error));
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
  TRUE(fy_error_message(NULL, NULL, 0) == 0);
  TRUE(frame == 7 && error.status == FY_NULL_POINTER);
  (void)address;
}

static void requests(fy_yard *yard) {
  fy_error error = fy_error_default();
  fy_request request = fy_request_default();
  fy_range range;
  uint64_t frame = 0;
  size_t count = 9;

  EXPECT(FY_BAD_ORDER, fy_alloc(yard, 19, FY_GFP_KERNEL, &frame, &error));
  TRUE(error.order == 19 && error.frame == FY_NO_FRAME && error.state == FY_NO_STATE);
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
  TRUE(fy_free_range(yard, block, 1u << 20, &error) != FY_OK); /* reaches beyond what is allocated */
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
  EXPECT(FY_BAD_FRAME, fy_split_at(yard, 3, &error));
  EXPECT(FY_ALREADY_FREE, fy_split_at(yard, two[1], &error));
  EXPECT(FY_BAD_FRAME, fy_join(yard, 3, 0, &error));
  EXPECT(FY_BAD_ORDER, fy_join(yard, 0, 19, &error));
  EXPECT(FY_ALREADY_FREE, fy_join(yard, two[1], 0, &error));
}

static void devices(fy_yard *yard) {
  fy_error error = fy_error_default();
  fy_geometry geometry = fy_geometry_default();
  fy_device_request request = fy_device_request_default();
  fy_device_memory memory = fy_device_memory_default();
  fy_device info = fy_device_default();
  uint64_t device = 7, other;
  size_t count;

  EXPECT(FY_OK, fy_yard_geometry(yard, &geometry, &error));
  EXPECT(FY_NULL_POINTER, fy_device_map(yard, NULL, &device, &error));
  EXPECT(FY_NULL_POINTER, fy_device_map(yard, &request, NULL, &error));
  EXPECT(FY_BAD_ARGUMENT, fy_device_map(yard, &request, &device, &error)); /* no frames */
  request.count = 512;
  request.start = geometry.first_frame;
  EXPECT(FY_BAD_FRAME, fy_device_map(yard, &request, &device, &error)); /* memory */
  request.start = geometry.device_start + geometry.device_count;
  EXPECT(FY_BAD_FRAME, fy_device_map(yard, &request, &device, &error)); /* behind the space */
  TRUE(error.frame == request.start);
  request.start = geometry.device_start + 1;
  EXPECT(FY_BAD_ARGUMENT, fy_device_map(yard, &request, &device, &error)); /* not aligned */
  request.start = UINT64_MAX - 3;
  EXPECT(FY_BAD_ARGUMENT, fy_device_map(yard, &request, &device, &error));
  request.start = geometry.device_start;
  request.layout = 9;
  EXPECT(FY_BAD_ARGUMENT, fy_device_map(yard, &request, &device, &error));
  request.layout = FY_DEVICE_FULL;
  request.placement = 2;
  EXPECT(FY_BAD_ARGUMENT, fy_device_map(yard, &request, &device, &error));
  request.placement = FY_DEVICE_MAP_IN_DEVICE;
  EXPECT(FY_BAD_ARGUMENT, fy_device_map(yard, &request, &device, &error)); /* there is no room for data beside them */
  request.count = 1024;
  EXPECT(FY_NOT_SUPPORTED, fy_device_map(yard, &request, &device, &error)); /* it has no bytes */
  request.count = 512;
  request.placement = FY_DEVICE_MAP_IN_MEMORY;
  request.order = 77;
  EXPECT(FY_BAD_ORDER, fy_device_map(yard, &request, &device, &error));
  request.order = UINT32_MAX;
  EXPECT(FY_BAD_ORDER, fy_device_map(yard, &request, &device, &error));
  request.order = 9;
  request.node = 63;
  EXPECT(FY_NO_SUCH_NODE, fy_device_map(yard, &request, &device, &error));
  request.node = 1u << 16;
  EXPECT(FY_NO_SUCH_NODE, fy_device_map(yard, &request, &device, &error));
  request.node = 0;
  request.size--;
  EXPECT(FY_BAD_SIZE, fy_device_map(yard, &request, &device, &error));
  request.size++;
  TRUE(device == 7);
  EXPECT(FY_OK, fy_device_map(yard, &request, &device, &error));
  EXPECT(FY_IN_USE, fy_device_map(yard, &request, &other, &error)); /* the frames have a device */
  EXPECT(FY_NOT_ALLOCATED, fy_free(yard, request.start, 0, &error)); /* they are the device's */
  TRUE(error.frame == request.start && error.state == FY_STATE_DEVICE);
  EXPECT(FY_NULL_POINTER, fy_device_list(yard, NULL, 1, &count, &error));
  EXPECT(FY_NULL_POINTER, fy_device_list(yard, &other, 1, NULL, &error));
  EXPECT(FY_NULL_POINTER, fy_device_info(yard, device, NULL, &error));
  EXPECT(FY_NO_SUCH_DEVICE, fy_device_info(yard, device ^ (uint64_t)1 << 60, &info, &error));
  EXPECT(FY_NO_SUCH_DEVICE, fy_device_unmap(yard, 12345, FY_DEVICE_REFUSE, &error));
  EXPECT(FY_NO_SUCH_DEVICE, fy_device_unmap(yard, device ^ (uint64_t)1 << 60, FY_DEVICE_REFUSE, &error));
  EXPECT(FY_BAD_ARGUMENT, fy_device_unmap(yard, device, 2, &error));
  info.size = 1;
  EXPECT(FY_BAD_SIZE, fy_device_at(yard, request.start, &info, &error));
  EXPECT(FY_BAD_FRAME, fy_device_at(yard, geometry.first_frame, &info, &error));
  EXPECT(FY_BAD_FRAME, fy_device_get(yard, geometry.first_frame, 1, &error));
  EXPECT(FY_BUSY, fy_device_get(yard, request.start, UINT32_MAX, &error)); /* they would overflow */
  EXPECT(FY_NOT_COUNTED, fy_device_put(yard, request.start, 1, &error)); /* the device's own is not the caller's */
  TRUE(error.frame == request.start);
  EXPECT(FY_BAD_FRAME, fy_device_put(yard, UINT64_MAX, 1, &error));
  EXPECT(FY_BAD_FRAME, fy_device_split(yard, request.start + 1, &error));
  EXPECT(FY_BAD_ARGUMENT, fy_device_join(yard, request.start, &error)); /* it is not split */
  EXPECT(FY_NOT_COUNTED, fy_device_remove_entry(yard, request.start, &error));
  EXPECT(FY_BAD_FRAME, fy_device_add_entry(yard, 0, &error));
  EXPECT(FY_NULL_POINTER, fy_device_unmap(NULL, device, 0, &error));
  EXPECT(FY_OK, fy_device_unmap(yard, device, FY_DEVICE_REFUSE, &error));
  EXPECT(FY_NO_SUCH_DEVICE, fy_device_unmap(yard, device, FY_DEVICE_REFUSE, &error));

  EXPECT(FY_NULL_POINTER, fy_device_add_memory(yard, request.start, NULL, &error));
  EXPECT(FY_BAD_ARGUMENT, fy_device_add_memory(yard, request.start, &memory, &error)); /* no bytes */
  memory.bytes = 4096;
  EXPECT(FY_BAD_ARGUMENT, fy_device_add_memory(yard, request.start, &memory, &error)); /* less than its alignment */
  memory.alignment = 1;
  EXPECT(FY_BAD_ARGUMENT, fy_device_add_memory(yard, request.start, &memory, &error));
  memory.alignment = 4096;
  EXPECT(FY_BAD_FRAME, fy_device_add_memory(yard, geometry.first_frame, &memory, &error)); /* they have bytes */
  EXPECT(FY_BAD_ARGUMENT, fy_device_add_memory(yard, UINT64_MAX, &memory, &error));
  memory.backing = FY_DEVICE_FILE;
  EXPECT(FY_NULL_POINTER, fy_device_add_memory(yard, request.start, &memory, &error));
  memory.path = "/proc/no/such/file";
  EXPECT(FY_SYSTEM, fy_device_add_memory(yard, request.start, &memory, &error));
  TRUE(error.system != 0);
  memory.backing = FY_DEVICE_DAX;
  memory.path = "/dev/null";
  EXPECT(FY_BAD_ARGUMENT, fy_device_add_memory(yard, request.start, &memory, &error));
  memory.backing = 99;
  EXPECT(FY_BAD_ARGUMENT, fy_device_add_memory(yard, request.start, &memory, &error));
  memory.backing = FY_DEVICE_MEMFD;
  memory.shared = 2;
  EXPECT(FY_BAD_ARGUMENT, fy_device_add_memory(yard, request.start, &memory, &error));
  EXPECT(FY_BAD_FRAME, fy_device_remove_memory(yard, request.start, 1, &error));
  EXPECT(FY_BAD_ARGUMENT, fy_device_remove_memory(yard, request.start, 0, &error));
}

static void spaces(fy_yard *yard) {
  fy_error error = fy_error_default();
  fy_mapping mapping = fy_mapping_default();
  uint64_t address = 1 << 30, frames[4] = {1, 2, 3, 4}, bytes;
  fy_range runs[2] = {{1, 1}, {UINT64_MAX, 2}};
  char text[16] = {0};
  fy_space *space, *other = NULL;
  size_t count;

  EXPECT(FY_NULL_POINTER, fy_space_create(NULL, &space, &error));
  EXPECT(FY_NULL_POINTER, fy_space_create(yard, NULL, &error));
  EXPECT(FY_BAD_FRAME, fy_unpin(yard, frames, 1, 0, &error)); /* no space has been made */
  EXPECT(FY_OK, fy_space_create(yard, &space, &error));
  EXPECT(FY_BAD_ARGUMENT, fy_space_open(yard, 12345, &other, &error));
  TRUE(other == NULL);
  EXPECT(FY_NULL_POINTER, fy_space_id(NULL, &bytes, &error));
  EXPECT(FY_NULL_POINTER, fy_space_id(space, NULL, &error));
  EXPECT(FY_NULL_POINTER, fy_space_map(space, NULL, &address, &error));
  EXPECT(FY_NULL_POINTER, fy_space_map(NULL, &mapping, &address, &error));
  EXPECT(FY_BAD_ARGUMENT, fy_space_map(space, &mapping, &address, &error)); /* no bytes */
  mapping.bytes = 4096;
  EXPECT(FY_NULL_POINTER, fy_space_map(space, &mapping, NULL, &error)); /* nothing would have the address */
  mapping.address = 5;
  EXPECT(FY_BAD_ARGUMENT, fy_space_map(space, &mapping, &address, &error));
  mapping.address = (uint64_t)1 << 47;
  EXPECT(FY_BAD_ARGUMENT, fy_space_map(space, &mapping, &address, &error));
  mapping.address = 0;
  mapping.bytes = (uint64_t)1 << 50;
  EXPECT(FY_OUT_OF_MEMORY, fy_space_map(space, &mapping, &address, &error));
  mapping.bytes = 8192;
  mapping.kind = 7;
  EXPECT(FY_BAD_ARGUMENT, fy_space_map(space, &mapping, &address, &error));
  mapping.kind = FY_MAP_DEVICE;
  mapping.page_order = 3;
  EXPECT(FY_BAD_ARGUMENT, fy_space_map(space, &mapping, &address, &error));
  mapping.page_order = 0;
  mapping.frame = UINT64_MAX;
  EXPECT(FY_BAD_ARGUMENT, fy_space_map(space, &mapping, &address, &error));
  mapping.kind = FY_MAP_ANONYMOUS;
  mapping.huge_pages = 3;
  EXPECT(FY_BAD_ARGUMENT, fy_space_map(space, &mapping, &address, &error));
  mapping.huge_pages = 0;
  mapping.read_only = 2;
  EXPECT(FY_BAD_ARGUMENT, fy_space_map(space, &mapping, &address, &error));
  mapping.read_only = 1;
  mapping.size = 0;
  EXPECT(FY_BAD_SIZE, fy_space_map(space, &mapping, &address, &error));
  mapping.size = sizeof mapping;
  TRUE(address == 1 << 30);
  mapping.address = address;
  EXPECT(FY_OK, fy_space_map(space, &mapping, NULL, &error));
  EXPECT(FY_IN_USE, fy_space_map(space, &mapping, NULL, &error));
  EXPECT(FY_BAD_ADDRESS, fy_space_touch(space, 1 << 20, FY_ACCESS_READ, &error));
  EXPECT(FY_BAD_ADDRESS, fy_space_touch(space, UINT64_MAX, FY_ACCESS_READ, &error));
  EXPECT(FY_BAD_ADDRESS, fy_space_touch(space, address, FY_ACCESS_WRITE, &error)); /* read-only */
  EXPECT(FY_BAD_ARGUMENT, fy_space_touch(space, address, 9, &error));
  EXPECT(FY_BAD_ADDRESS, fy_space_write(space, address, text, 4, &error));
  EXPECT(FY_NULL_POINTER, fy_space_write(space, address, NULL, 4, &error));
  EXPECT(FY_NULL_POINTER, fy_space_read(space, address, NULL, 4, &error));
  EXPECT(FY_BAD_ARGUMENT, fy_space_read(space, address, text, SIZE_MAX, &error));
  EXPECT(FY_BAD_ADDRESS, fy_space_read(space, address + 8190, text, 4, &error));
  EXPECT(FY_NULL_POINTER, fy_space_frame(space, address, NULL, &error));
  EXPECT(FY_BAD_ADDRESS, fy_space_frame(space, UINT64_MAX, &bytes, &error));
  EXPECT(FY_BAD_ADDRESS, fy_space_unmap(space, 1 << 20, 4096, &error));
  EXPECT(FY_BAD_ARGUMENT, fy_space_unmap(space, UINT64_MAX, 4096, &error));
  EXPECT(FY_BAD_ARGUMENT, fy_space_unmap(space, address, 5, &error));

  EXPECT(FY_NULL_POINTER, fy_pin(NULL, address, 0, frames, 1, &count, &error));
  EXPECT(FY_NULL_POINTER, fy_pin(space, address, 0, NULL, 1, &count, &error));
  EXPECT(FY_NULL_POINTER, fy_pin(space, address, 0, frames, 1, NULL, &error));
  EXPECT(FY_BAD_FLAGS, fy_pin(space, address, FY_PIN_DIRTY, frames, 1, &count, &error));
  EXPECT(FY_BAD_ARGUMENT, fy_pin(space, address + 1, 0, frames, 1, &count, &error));
  EXPECT(FY_BAD_ARGUMENT, fy_pin(space, address, 0, frames, 0, &count, &error));
  EXPECT(FY_BAD_ARGUMENT, fy_pin(space, address, 0, frames, SIZE_MAX, &count, &error));
  EXPECT(FY_BAD_ADDRESS, fy_pin(space, 1 << 20, 0, frames, 4, &count, &error));
  EXPECT(FY_BAD_ADDRESS, fy_pin(space, address, FY_PIN_WRITE, frames, 4, &count, &error));
  TRUE(count == 0);
  EXPECT(FY_OK, fy_pin(space, address, 0, frames, 4, &count, &error));
  TRUE(count == 2); /* the mapping ends */
  EXPECT(FY_BAD_FLAGS, fy_unpin(yard, frames, 2, FY_PIN_WRITE, &error));
  EXPECT(FY_NULL_POINTER, fy_unpin(yard, NULL, 2, 0, &error));
  EXPECT(FY_NULL_POINTER, fy_pin_runs(space, address, 4096, 0, runs, 2, &count, NULL, &error));
  EXPECT(FY_NULL_POINTER, fy_pin_runs(space, address, 4096, 0, runs, 2, NULL, &bytes, &error));
  EXPECT(FY_NULL_POINTER, fy_pin_runs(space, address, 4096, 0, NULL, 2, &count, &bytes, &error));
  EXPECT(FY_BAD_ARGUMENT, fy_pin_runs(space, address, 0, 0, runs, 2, &count, &bytes, &error));
  EXPECT(FY_BAD_ARGUMENT, fy_pin_runs(space, address, 4096, 0, runs, 0, &count, &bytes, &error));
  EXPECT(FY_BAD_ARGUMENT, fy_pin_runs(space, address, UINT64_MAX, 0, runs, 2, &count, &bytes, &error));
  runs[0].start = UINT64_MAX;
  runs[0].count = 2;
  EXPECT(FY_BAD_ARGUMENT, fy_unpin_runs(yard, runs, 1, 0, &error));
  EXPECT(FY_NULL_POINTER, fy_unpin_runs(yard, NULL, 1, 0, &error));
  runs[0].start = 3;
  EXPECT(FY_BAD_FRAME, fy_unpin_runs(yard, runs, 1, 0, &error)); /* a foreign frame */
  TRUE(error.frame == 3);
  EXPECT(FY_OK, fy_unpin(yard, frames, 2, 0, &error));
  EXPECT(FY_NOT_COUNTED, fy_unpin(yard, frames, 2, 0, &error));
  TRUE(error.frame == frames[0]);
  EXPECT(FY_OK, fy_space_destroy(space, &error));
}

static void shared(void) {
  fy_config config = fy_config_default();
  fy_error error = fy_error_default();
  fy_yard *yard, *other;
  FILE *file;
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
  file = tmpfile();
  fputs("a file of another kind", file);
  fflush(file);
  sprintf(name, "/proc/self/fd/%d", fileno(file));
  EXPECT(FY_BAD_FILE, fy_yard_open_shared(name, NULL, &yard, &error));
  TRUE(yard == NULL);
  fclose(file);
  EXPECT(FY_SYSTEM, fy_yard_create_shared("/proc/no/such/folder", &config, &yard, &error));
  TRUE(error.system != 0);
}

static void phantom(void) {
  fy_config config = fy_config_default();
  fy_error error = fy_error_default();
  fy_yard *yard;
  uint64_t frame;
  void *address;

  config.memory = (uint64_t)8 << 20;
  config.backing = FY_BACKING_PHANTOM;
  EXPECT(FY_OK, fy_yard_create(&config, &yard, &error));
  EXPECT(FY_OK, fy_alloc(yard, 0, FY_GFP_KERNEL, &frame, &error));
  EXPECT(FY_NO_FRAME_BYTES, fy_address(yard, frame, &address, &error));
  TRUE(error.frame == frame);
  fy_yard_destroy(yard);
}

/* A stray write: 0 over each word of the frames with the tables of an address space, one at a time. Validation reports it. */
static void damage(void) {
  fy_config config = fy_config_default();
  fy_error error = fy_error_default();
  fy_geometry geometry = fy_geometry_default();
  fy_mapping mapping = fy_mapping_default();
  fy_frame info = fy_frame_default();
  fy_yard *yard;
  fy_space *space;
  uint64_t address, frame, *words, word;
  void *bytes;
  size_t at;

  config.memory = (uint64_t)8 << 20;
  mapping.bytes = 8192;
  EXPECT(FY_OK, fy_yard_create(&config, &yard, &error));
  EXPECT(FY_OK, fy_yard_geometry(yard, &geometry, &error));
  EXPECT(FY_OK, fy_space_create(yard, &space, &error));
  EXPECT(FY_OK, fy_space_map(space, &mapping, &address, &error));
  EXPECT(FY_OK, fy_space_touch(space, address, FY_ACCESS_WRITE, &error));
  EXPECT(FY_OK, fy_yard_validate(yard, &error));
  for (frame = geometry.first_frame; frame < geometry.first_frame + 2048; frame++) {
    if (fy_frame_info(yard, frame, &info, &error) != FY_OK || info.state != FY_STATE_COUNTED) continue;
    EXPECT(FY_OK, fy_address(yard, frame, &bytes, &error));
    words = bytes;
    for (at = 0; at < 512; at++) {
      word = words[at];
      words[at] = 0;
      seen[fy_yard_validate(yard, &error)] = 1;
      words[at] = word;
    }
  }
  TRUE(seen[FY_INVALID]);
  EXPECT(FY_DAMAGED, fy_yard_validate(yard, &error)); /* the first damage of tables is noted */
  fy_yard_destroy(yard);
}

/* The program has produced all statuses but these. Tests in Rust produce them. */
static void statuses(void) {
  int status, known = 0;

  for (status = 0; status < 100; status++) {
    if (strcmp(fy_strerror(status), fy_strerror(-1)) == 0) continue; /* no status */
    known++;
    if (status == FY_PANICKED) continue;           /* needs a failure inside the library */
    if (status == FY_WRITTEN_WHILE_FREE) continue; /* needs a yard that checks free frames, which C does not make */
    TRUE(seen[status]);
    if (!seen[status]) fprintf(stderr, "no call has returned: %s\n", fy_strerror(status));
  }
  TRUE(known >= 30);
}

int main(void) {
  fy_config config = fy_config_default();
  fy_yard *yard;

  creation();
  config.memory = (uint64_t)16 << 20;
  config.device_space = 1;
  EXPECT(FY_OK, fy_yard_create(&config, &yard, NULL));
  null_pointers(yard);
  requests(yard);
  frees(yard);
  devices(yard);
  spaces(yard);
  EXPECT(FY_OK, fy_yard_validate(yard, NULL));
  fy_yard_destroy(yard);
  shared();
  phantom();
  damage();
  statuses();
  printf("%d checks of bad input, %d failed\n", checks, failures);
  return failures != 0;
}
