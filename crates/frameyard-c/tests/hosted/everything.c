/* Every function of the header, used as it is meant. */
#include <frameyard.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                                      \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, error.message);              \
      exit(1);                                                                                \
    }                                                                                         \
  } while (0)

static fy_error error;
static int lines_logged;

static void count_lines(void *context, uint32_t level, const char *text) {
  if (level <= FY_LOG_INFO && strlen(text) > 3) ++*(int *)context;
}

/* Frames that a reclaim hook can free. */
struct cache {
  fy_yard *yard;
  uint64_t frames[64];
  size_t held;
  int calls;
};

static uint64_t shrink(void *context, const fy_reclaim *wanted) {
  struct cache *cache = (struct cache *)context;
  uint64_t freed = 0;

  cache->calls++;
  while (cache->held > 0 && freed < wanted->wanted) {
    cache->held--;
    if (fy_free(cache->yard, cache->frames[cache->held], 0, NULL) == FY_OK) freed++;
  }
  return freed;
}

static void versions(void) {
  char text[100];

  CHECK(strlen(fy_strerror(FY_BUSY)) > 5 && fy_error_message(&error, text, sizeof text) == strlen(text));
  CHECK(fy_version() == FY_VERSION);
  CHECK(strlen(fy_version_text()) >= 5);
}

static void blocks(fy_yard *yard) {
  fy_statistics before = fy_statistics_default(), after = fy_statistics_default();
  fy_geometry geometry = fy_geometry_default();
  uint64_t frame, found, many[300];
  size_t count = 0;
  void *bytes;

  CHECK(fy_yard_statistics(yard, &before, &error) == FY_OK);
  CHECK(fy_yard_geometry(yard, &geometry, &error) == FY_OK);
  CHECK(geometry.frame_size == 4096 && geometry.max_order == 10 && geometry.nodes > 0 && geometry.cpus > 0);
  CHECK(geometry.end_frame - geometry.first_frame >= before.managed && before.managed >= before.free);
  CHECK(fy_alloc(yard, 2, FY_GFP_USER | FY_GFP_ZERO, &frame, &error) == FY_OK);
  CHECK(frame >= geometry.first_frame && frame + 4 <= geometry.end_frame);
  CHECK(fy_address(yard, frame, &bytes, &error) == FY_OK);
  CHECK(((char *)bytes)[0] == 0 && ((char *)bytes)[4 * 4096 - 1] == 0);
  memset(bytes, 1, 4 * 4096);
  CHECK(fy_frame_at(yard, (char *)bytes + 3 * 4096 + 5, &found, &error) == FY_OK && found == frame + 3);
  CHECK(fy_yard_statistics(yard, &after, &error) == FY_OK && after.free == before.free - 4);
  CHECK(fy_split(yard, frame, 2, &error) == FY_OK);
  CHECK(fy_join(yard, frame, 2, &error) == FY_OK && fy_free(yard, frame + 1, 0, &error) == FY_WRONG_ORDER);
  CHECK(((char *)bytes)[0] == 1 && ((char *)bytes)[4 * 4096 - 1] == 1);
  CHECK(fy_split_at(yard, frame + 1, &error) == FY_OK && fy_free(yard, frame + 2, 1, &error) == FY_OK);
  CHECK(fy_free_range(yard, frame, 2, &error) == FY_OK);
  CHECK(fy_alloc_on(yard, 0, 0, FY_GFP_KERNEL | FY_GFP_THISNODE, &frame, &error) == FY_OK);
  CHECK(fy_free(yard, frame, 0, &error) == FY_OK);
  CHECK(fy_alloc_exact(yard, 5, FY_GFP_KERNEL, &frame, &error) == FY_OK);
  CHECK(fy_free_range(yard, frame + 4, 1, &error) == FY_OK);
  CHECK(fy_free_range(yard, frame, 4, &error) == FY_OK);
  CHECK(fy_alloc_bulk(yard, FY_GFP_KERNEL, many, 300, &count, &error) == FY_OK && count == 300);
  CHECK(fy_free_bulk(yard, many, count, &error) == FY_OK);
  CHECK(fy_yard_statistics(yard, &after, &error) == FY_OK && after.free == before.free);
}

static void requests(fy_yard *yard) {
  fy_request request = fy_request_default();
  fy_range range, again;

  request.flags = FY_GFP_KERNEL;
  request.count = 2500; /* longer than the largest block */
  request.align = 10;
  CHECK(fy_alloc_request(yard, &request, &range, &error) == FY_OK);
  CHECK(range.count == 2500 && range.start % 1024 == 0);
  CHECK(fy_free_range(yard, range.start, range.count, &error) == FY_OK);
  request = fy_request_default();
  request.flags = FY_GFP_KERNEL;
  request.start = range.start + 7;
  request.count = 20;
  request.exact_place = 1;
  CHECK(fy_alloc_request(yard, &request, &again, &error) == FY_OK);
  CHECK(again.start == range.start + 7 && again.count == 20);
  CHECK(fy_alloc_request(yard, &request, &again, &error) == FY_IN_USE && error.frame == range.start + 7);
  CHECK(fy_free_range(yard, again.start, again.count, &error) == FY_OK);
}

static void reclaim(fy_yard *yard) {
  static uint64_t all[1 << 16];
  fy_request request = fy_request_default();
  struct cache cache;
  fy_range range;
  size_t count = 0, last = 0, part;

  memset(&cache, 0, sizeof cache);
  cache.yard = yard;
  while (fy_alloc_bulk(yard, FY_GFP_KERNEL | FY_GFP_NOWARN, all + count, 64, &part, &error) == FY_OK) count += part;
  CHECK(error.status == FY_OUT_OF_MEMORY && error.order == 0 && error.node == 0);
  for (last = count; cache.held < 64; cache.held++) cache.frames[cache.held] = all[--last];
  request.flags = FY_GFP_KERNEL;
  request.order = 0;
  request.reclaim = shrink;
  request.context = &cache;
  CHECK(fy_alloc_request(yard, &request, &range, &error) == FY_OK);
  CHECK(cache.calls > 0 && cache.held < 64);
  CHECK(fy_free(yard, range.start, 0, &error) == FY_OK);
  CHECK(fy_free_bulk(yard, cache.frames, cache.held, &error) == FY_OK);
  CHECK(fy_free_bulk(yard, all, last, &error) == FY_OK);
}

static int has_policy(fy_yard *yard, const char *wanted) {
  const char *name;

  CHECK(fy_yard_policy(yard, &name, &error) == FY_OK);
  return strcmp(name, wanted) == 0;
}

static void upkeep(fy_yard *yard) {
  const char *created;
  uint32_t index;

  /* A yard changes to the policies of the store that it was created with. */
  CHECK(fy_yard_policy(yard, &created, &error) == FY_OK);
  for (index = 0; fy_policy_name(index) != NULL; index++) {
    const char *wanted = fy_policy_name(index);
    int is_bits = strncmp(wanted, "bits", 4) == 0 || strncmp(created, "bits", 4) == 0;
    int allowed = !is_bits || strcmp(wanted, created) == 0;

    CHECK(fy_yard_set_policy(yard, wanted, &error) == (allowed ? FY_OK : FY_NOT_SUPPORTED));
    CHECK(has_policy(yard, wanted) == allowed);
  }
  CHECK(index >= 2);
  CHECK(fy_yard_drain_cpu(yard, 0, &error) == FY_OK);
  CHECK(fy_yard_drain(yard, &error) == FY_OK);
  CHECK(fy_yard_compact(yard, 0, &error) == FY_OK);
  CHECK(fy_yard_compact(yard, FY_NO_NODE, &error) == FY_OK);
  CHECK(fy_yard_validate(yard, &error) == FY_OK);
}

static void texts(fy_yard *yard) {
  static const char *const parts[] = {"Node 0, zone", "Free pages count", "pages free", "nr_free_pages", "zone_lock", "# TYPE"};
  char small[10];
  uint32_t text;

  for (text = FY_TEXT_BUDDYINFO; text <= FY_TEXT_PROMETHEUS; text++) {
    size_t length, again;
    char *buffer;
    CHECK(fy_yard_text(yard, text, NULL, 0, &length, &error) == FY_OK && length > 20);
    buffer = (char *)malloc(length + 100);
    CHECK(buffer != NULL && fy_yard_text(yard, text | FY_TEXT_LINUX_6_1, buffer, length + 100, &again, &error) == FY_OK);
    CHECK(strlen(buffer) == again || again >= length + 100);
    if (strstr(buffer, parts[text]) == NULL) fprintf(stderr, "%s\n", buffer);
    CHECK(strstr(buffer, parts[text]) != NULL);
    free(buffer);
    CHECK(fy_yard_text(yard, text, small, sizeof small, &length, &error) == FY_OK && strlen(small) == 9);
  }
}

/* Bytes of a device are those of a memory file, and users of its pages keep it mapped. */
static void devices(fy_yard *yard) {
  fy_geometry geometry = fy_geometry_default();
  fy_device_request request = fy_device_request_default();
  fy_device_memory memory = fy_device_memory_default();
  fy_device info = fy_device_default();
  uint64_t device, again, list[4], found;
  size_t count;
  void *bytes;

  CHECK(fy_yard_geometry(yard, &geometry, &error) == FY_OK);
  CHECK(geometry.device_count * 4096 >= (uint64_t)16 << 20 && geometry.device_unit <= 9);
  request.start = geometry.device_start;
  request.count = 1024;
  request.order = 9;
  memory.bytes = 1024 * 4096;
  CHECK(fy_device_add_memory(yard, request.start, &memory, &error) == FY_OK);
  CHECK(fy_device_map(yard, &request, &device, &error) == FY_OK);
  CHECK(fy_device_list(yard, list, 4, &count, &error) == FY_OK && count == 1 && list[0] == device);
  CHECK(fy_device_info(yard, device, &info, &error) == FY_OK);
  CHECK(info.device == device && info.frames.start == request.start && info.frames.count == 1024 && info.order == 9);
  CHECK(info.data.count == 1024 && info.layout == FY_DEVICE_FULL && info.map_bytes == 1024 * 64 && info.mappings == 0);
  CHECK(fy_device_at(yard, request.start + 700, &info, &error) == FY_OK && info.device == device);
  CHECK(fy_address(yard, request.start + 1, &bytes, &error) == FY_OK);
  strcpy((char *)bytes, "device");
  CHECK(fy_frame_at(yard, (char *)bytes + 4095, &found, &error) == FY_OK && found == request.start + 1);

  CHECK(fy_device_get(yard, request.start + 600, 3, &error) == FY_OK);
  CHECK(fy_device_unmap(yard, device, FY_DEVICE_REFUSE, &error) == FY_IN_USE && error.frame == request.start + 512);
  CHECK(fy_device_split(yard, request.start + 512, &error) == FY_IN_USE);
  CHECK(fy_device_put(yard, request.start + 512, 4, &error) == FY_NOT_COUNTED);
  CHECK(fy_device_put(yard, request.start + 1023, 3, &error) == FY_OK);
  CHECK(fy_device_split(yard, request.start + 512, &error) == FY_OK);
  CHECK(fy_device_get(yard, request.start + 600, 1, &error) == FY_OK);
  CHECK(fy_device_put(yard, request.start + 601, 1, &error) == FY_NOT_COUNTED);
  CHECK(fy_device_put(yard, request.start + 600, 1, &error) == FY_OK);
  CHECK(fy_device_join(yard, request.start + 512, &error) == FY_OK);
  CHECK(fy_device_add_entry(yard, request.start, &error) == FY_OK);
  CHECK(fy_device_unmap(yard, device, FY_DEVICE_WAIT, &error) == FY_IN_USE);
  CHECK(fy_device_remove_entry(yard, request.start, &error) == FY_OK);
  CHECK(fy_device_remove_memory(yard, request.start, 1024, &error) == FY_IN_USE);
  CHECK(fy_device_unmap(yard, device, FY_DEVICE_REFUSE, &error) == FY_OK);
  CHECK(fy_device_remove_memory(yard, request.start, 1024, &error) == FY_OK);

  /* One page structure for each compound page, and none of the removed device's names. */
  request.layout = FY_DEVICE_FOLDED;
  CHECK(fy_device_map(yard, &request, &again, &error) == FY_OK && again != device);
  CHECK(fy_device_info(yard, again, &info, &error) == FY_OK && info.map_bytes == 4096);
  CHECK(fy_device_unmap(yard, device, FY_DEVICE_REFUSE, &error) == FY_NO_SUCH_DEVICE);
  CHECK(fy_device_unmap(yard, again, FY_DEVICE_REFUSE, &error) == FY_OK);
}

/* Pinned frames stay where they are, even without an address. */
static void pins(fy_yard *yard) {
  fy_mapping mapping = fy_mapping_default();
  fy_space *space, *same;
  fy_range runs[8];
  fy_frame info = fy_frame_default();
  uint64_t address, id, frame, frames[300], bytes;
  size_t count, at;
  char text[8] = "";
  void *here;

  CHECK(fy_space_create(yard, &space, &error) == FY_OK);
  CHECK(fy_space_id(space, &id, &error) == FY_OK && fy_space_open(yard, id, &same, &error) == FY_OK);
  mapping.bytes = (uint64_t)4 << 20;
  mapping.huge_pages = FY_HUGE_PAGES_ADVISE;
  CHECK(fy_space_map(space, &mapping, &address, &error) == FY_OK && address % 4096 == 0);
  CHECK(fy_space_frame(space, address, &frame, &error) == FY_BAD_ADDRESS);
  CHECK(fy_space_touch(space, address, FY_ACCESS_WRITE, &error) == FY_OK);
  CHECK(fy_space_write(space, address + 4094, "frames", 6, &error) == FY_OK);
  CHECK(fy_space_read(same, address + 4094, text, 6, &error) == FY_OK && strcmp(text, "frames") == 0);
  CHECK(fy_space_frame(same, address, &frame, &error) == FY_OK);
  CHECK(fy_address(yard, frame, &here, &error) == FY_OK && memcmp((char *)here + 4094, "fr", 2) == 0);
  CHECK(fy_frame_info(yard, frame, &info, &error) == FY_OK && info.state == FY_STATE_COUNTED);

  CHECK(fy_pin(space, address, FY_PIN_WRITE, frames, 300, &count, &error) == FY_OK && count == 300);
  CHECK(frames[0] == frame);
  CHECK(fy_pin_runs(space, address, 300 * 4096, FY_PIN_LONGTERM, runs, 8, &count, &bytes, &error) == FY_OK);
  CHECK(bytes == 300 * 4096 && count >= 1 && runs[0].start == frame);
  for (at = 0, frame = 0; at < count; at++) frame += runs[at].count;
  CHECK(frame == 300);
  CHECK(fy_yard_compact(yard, FY_NO_NODE, &error) == FY_OK);
  CHECK(fy_space_frame(space, address, &frame, &error) == FY_OK && frame == frames[0]);
  CHECK(fy_unpin_runs(yard, runs, count, FY_PIN_DIRTY, &error) == FY_OK);
  CHECK(fy_space_unmap(space, address, mapping.bytes, &error) == FY_OK);
  CHECK(fy_space_frame(space, address, &frame, &error) == FY_BAD_ADDRESS);
  CHECK(fy_space_destroy(space, &error) == FY_OK && fy_space_destroy(same, &error) == FY_OK);
  CHECK(fy_free(yard, frames[0], 0, &error) != FY_OK); /* they are pinned */
  CHECK(fy_unpin(yard, frames, 300, FY_PIN_DIRTY | FY_PIN_PER_PAGE, &error) == FY_OK);
  CHECK(fy_unpin(yard, frames, 300, 0, &error) != FY_OK);
  CHECK(fy_space_destroy(NULL, NULL) == FY_OK);
}

/* A space maps a device, and pins of its pages keep the device mapped. */
static void pinned_device(fy_yard *yard) {
  fy_geometry geometry = fy_geometry_default();
  fy_device_request request = fy_device_request_default();
  fy_mapping mapping = fy_mapping_default();
  uint64_t device, address, frame;
  size_t count;
  fy_space *space;

  CHECK(fy_yard_geometry(yard, &geometry, &error) == FY_OK);
  request.start = geometry.device_start;
  request.count = 512;
  request.order = 9;
  request.layout = FY_DEVICE_DEDUPLICATED;
  CHECK(fy_device_map(yard, &request, &device, &error) == FY_OK);
  CHECK(fy_space_create(yard, &space, &error) == FY_OK);
  mapping.kind = FY_MAP_DEVICE;
  mapping.frame = request.start;
  mapping.page_order = 9;
  mapping.bytes = (uint64_t)2 << 20;
  mapping.address = (uint64_t)1 << 30;
  CHECK(fy_space_map(space, &mapping, NULL, &error) == FY_OK);
  address = mapping.address + 5 * 4096;
  CHECK(fy_pin(space, address, FY_PIN_REFERENCE, &frame, 1, &count, &error) == FY_OK && frame == request.start + 5);
  CHECK(fy_space_unmap(space, mapping.address, mapping.bytes, &error) == FY_OK);
  CHECK(fy_device_unmap(yard, device, FY_DEVICE_REFUSE, &error) == FY_IN_USE);
  CHECK(fy_unpin(yard, &frame, 1, FY_PIN_REFERENCE, &error) == FY_OK);
  CHECK(fy_space_destroy(space, &error) == FY_OK);
  CHECK(fy_device_unmap(yard, device, FY_DEVICE_REFUSE, &error) == FY_OK);
}

static void shared(fy_config config) {
  fy_yard *yard, *other;
  uint64_t frame;
  void *here, *there;
  char name[64];

  sprintf(name, "frameyard-c-%ld", (long)getpid());
  CHECK(fy_yard_create_shared(name, &config, &yard, &error) == FY_OK);
  CHECK(fy_yard_open_shared(name, NULL, &other, &error) == FY_OK && has_policy(other, config.policy));
  CHECK(fy_alloc(yard, 0, FY_GFP_KERNEL, &frame, &error) == FY_OK);
  CHECK(fy_address(yard, frame, &here, &error) == FY_OK && fy_address(other, frame, &there, &error) == FY_OK);
  strcpy((char *)here, "hello");
  CHECK(here != there && strcmp((const char *)there, "hello") == 0);
  CHECK(fy_free(other, frame, 0, &error) == FY_OK);
  fy_yard_destroy(yard);
  CHECK(fy_yard_validate(other, &error) == FY_OK);
  fy_yard_destroy(other);
}

static void phantom(fy_config config) {
  fy_yard *yard;
  uint64_t frame;
  void *bytes;

  config.backing = FY_BACKING_PHANTOM;
  config.memory = (uint64_t)1 << 40;
  config.cpus = 1;
  config.policy = "vanilla";
  CHECK(fy_yard_create(&config, &yard, &error) == FY_OK);
  CHECK(fy_alloc(yard, 0, FY_GFP_KERNEL, &frame, &error) == FY_OK);
  CHECK(fy_address(yard, frame, &bytes, &error) == FY_NO_FRAME_BYTES);
  CHECK(fy_alloc(yard, 0, FY_GFP_KERNEL | FY_GFP_ZERO, &frame, &error) == FY_NO_FRAME_BYTES);
  CHECK(fy_free(yard, frame, 0, &error) == FY_OK);
  fy_yard_destroy(yard);
}

/* A policy of each store, and of each placement. */
static const char *const stores[] = {"vanilla", "bits", "bits-trees"};

int main(void) {
  fy_config config = fy_config_default();
  fy_yard *yard;
  size_t at;

  error = fy_error_default();
  versions();
  config.memory = (uint64_t)64 << 20;
  config.device_space = (uint64_t)16 << 20;
  config.log = count_lines;
  config.log_context = &lines_logged;
  for (at = 0; at < sizeof stores / sizeof stores[0]; at++) {
    config.policy = stores[at];
    CHECK(fy_yard_create(&config, &yard, &error) == FY_OK && has_policy(yard, stores[at]));
    blocks(yard);
    requests(yard);
    reclaim(yard);
    texts(yard);
    devices(yard);
    pins(yard);
    pinned_device(yard);
    upkeep(yard);
    fy_yard_destroy(yard);
    shared(config);
  }
  CHECK(lines_logged > 3);
  phantom(config);
  puts("everything works");
  return 0;
}
