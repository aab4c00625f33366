/* Brings up a yard on static memory, allocates from two CPUs, prints and validates. */
#include "freestanding.h"

/* Where devices can be mapped. */
#define DEVICE_FRAME (FIRST_FRAME * 16)
#define DEVICE_FRAMES 1024

static fy_error error;

#define CHECK(condition)                              \
  do {                                                \
    if (!(condition)) fail(__LINE__, #condition);     \
  } while (0)

static void fail(int line, const char *condition) {
  char message[200];
  (void)fy_error_message(&error, message, sizeof message);
  print("line ");
  print_number((uint64_t)line);
  print(": ");
  print(condition);
  print(": ");
  print(message);
  print("\n");
  leave_program(1);
}

static uint64_t free_frames(const fy_yard *yard) {
  fy_statistics statistics = fy_statistics_default();
  CHECK(fy_yard_statistics(yard, &statistics, &error) == FY_OK);
  return statistics.free;
}

/* Two CPUs allocate, and each frees what the other has. */
static void two_cpus(const fy_yard *yard) {
  uint64_t frames[2][100], block;
  uint32_t cpu, at;
  unsigned char *bytes;
  void *address;

  for (cpu = 0; cpu < 2; cpu++) {
    running = cpu;
    for (at = 0; at < 100; at++) {
      CHECK(fy_alloc(yard, 0, FY_GFP_KERNEL | FY_GFP_ZERO, &frames[cpu][at], &error) == FY_OK);
      CHECK(fy_address(yard, frames[cpu][at], &address, &error) == FY_OK);
      bytes = (unsigned char *)address;
      CHECK(bytes[0] == 0 && bytes[FRAME_BYTES - 1] == 0);
      bytes[0] = (unsigned char)(cpu + 1);
      bytes[FRAME_BYTES - 1] = 0xff;
    }
    CHECK(fy_alloc(yard, 9, FY_GFP_USER, &block, &error) == FY_OK && block % 512 == 0);
    CHECK(fy_free(yard, block, 9, &error) == FY_OK);
  }
  for (cpu = 0; cpu < 2; cpu++) {
    running = 1 - cpu;
    for (at = 0; at < 100; at++) {
      CHECK(fy_address(yard, frames[cpu][at], &address, &error) == FY_OK);
      CHECK(((unsigned char *)address)[0] == cpu + 1);
      CHECK(fy_free(yard, frames[cpu][at], 0, &error) == FY_OK);
    }
  }
  CHECK(fy_free(yard, frames[0][7], 0, &error) == FY_ALREADY_FREE && error.frame == frames[0][7]);
  CHECK(cpus[0].interrupts_off == 0 && cpus[1].interrupts_off == 0);
}

/* Fills the yard and empties it. */
static void all_frames(const fy_yard *yard) {
  static uint64_t frames[FRAMES];
  size_t count = 0, part;

  while (fy_alloc_bulk(yard, FY_GFP_KERNEL | FY_GFP_NOWARN, frames + count, 64, &part, &error) == FY_OK) count += part;
  CHECK(error.status == FY_OUT_OF_MEMORY && count > FRAMES / 2);
  CHECK(fy_free_bulk(yard, frames, count, &error) == FY_OK);
}

static void texts(const fy_yard *yard) {
  static char buffer[1 << 15];
  uint32_t text;
  size_t length;

  for (text = FY_TEXT_BUDDYINFO; text <= FY_TEXT_PROMETHEUS; text++) {
    CHECK(fy_yard_text(yard, text, buffer, sizeof buffer, &length, &error) == FY_OK && length > 20);
    if (text == FY_TEXT_BUDDYINFO) print(buffer);
  }
}

/* Memory of a device beside the yard's. Users of its pages keep it mapped. */
static void device(const fy_yard *yard) {
  fy_device_request request = fy_device_request_default();
  fy_device info = fy_device_default();
  uint64_t found;
  size_t count;

  request.start = DEVICE_FRAME;
  request.count = DEVICE_FRAMES;
  request.order = 9;
  CHECK(fy_device_map(yard, &request, &found, &error) == FY_OK);
  CHECK(fy_device_list(yard, NULL, 0, &count, &error) == FY_OK && count == 1);
  CHECK(fy_device_at(yard, DEVICE_FRAME + 700, &info, &error) == FY_OK && info.device == found);
  CHECK(fy_device_get(yard, DEVICE_FRAME + 700, 1, &error) == FY_OK);
  CHECK(fy_device_unmap(yard, found, FY_DEVICE_REFUSE, &error) == FY_IN_USE && error.frame == DEVICE_FRAME + 512);
  CHECK(fy_device_put(yard, DEVICE_FRAME + 512, 1, &error) == FY_OK);
  CHECK(fy_device_split(yard, DEVICE_FRAME, &error) == FY_OK && fy_device_join(yard, DEVICE_FRAME, &error) == FY_OK);
  CHECK(fy_device_add_entry(yard, DEVICE_FRAME, &error) == FY_OK);
  CHECK(fy_device_unmap(yard, found, FY_DEVICE_WAIT, &error) == FY_IN_USE);
  CHECK(fy_device_remove_entry(yard, DEVICE_FRAME, &error) == FY_OK);
  CHECK(fy_device_unmap(yard, found, FY_DEVICE_REFUSE, &error) == FY_OK);
  CHECK(fy_device_info(yard, found, &info, &error) == FY_NO_SUCH_DEVICE);
}

int kernel(uint64_t argument) {
  static const char *const policies[] = {"vanilla", "skip-merge", "cluster-bulk"};
  fy_memory range = {FIRST_FRAME, FRAMES, 0, 0};
  fy_core_config config = fy_core_config_default();
  fy_platform_ops ops = kernel_ops();
  uint64_t before;
  size_t at, creating, most;
  int lists;
  fy_yard *yard;

  (void)argument;
  error = fy_error_default();
  config.cpus = 2;
  config.memory = &range;
  config.memory_ranges = 1;
  config.device_start = DEVICE_FRAME;
  config.device_count = DEVICE_FRAMES;
  /* Free frames are bits under the default policy, and on free lists under all others, which can change. */
  for (lists = 0; lists < 2; lists++) {
    config.policy = lists ? "vanilla" : NULL;
    CHECK(fy_core_create(&ops, &config, &yard, &error) == FY_OK);
    creating = stack_used();
    before = free_frames(yard);
    two_cpus(yard);
    all_frames(yard);
    device(yard);
    CHECK(fy_yard_drain(yard, &error) == FY_OK);
    texts(yard);
    for (at = 0; lists && at < sizeof policies / sizeof policies[0]; at++) {
      CHECK(fy_yard_set_policy(yard, policies[at], &error) == FY_OK);
      two_cpus(yard);
      all_frames(yard);
    }
    CHECK(fy_yard_compact(yard, FY_NO_NODE, &error) == FY_OK);
    CHECK(fy_yard_validate(yard, &error) == FY_OK);
    CHECK(free_frames(yard) == before);
    fy_yard_destroy(yard);
  }

  /* Without sequences, CPUs lock their lists: under the default policy, and with free lists. */
  ops.end_sequences = NULL;
  for (at = 0; at < 2; at++) {
    config.policy = at == 0 ? NULL : "vanilla";
    CHECK(fy_core_create(&ops, &config, &yard, &error) == FY_OK);
    before = free_frames(yard);
    two_cpus(yard);
    all_frames(yard);
    CHECK(fy_yard_validate(yard, &error) == FY_OK && free_frames(yard) == before);
    fy_yard_destroy(yard);
  }
  most = stack_used();
  CHECK(most <= STACK_BYTES);
  print("the kernel has ");
  print_number(before);
  print(" free frames, has used ");
  print_number(most);
  print(" bytes of stack, ");
  print_number(creating);
  print(" to create a yard, and halts\n");
  return 0;
}
