/* Bad input leads to an error, never to a crash. At the end, a failure inside the library reaches the kernel's panic operation. */
#include "freestanding.h"

void *memcpy(void *to, const void *from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *at, int value, size_t bytes);
int memcmp(const void *one, const void *other, size_t bytes);
size_t strlen(const char *text);

static uint64_t failures, checks;
static fy_error error;
static fy_yard *last_yard;

#define EXPECT(status, call)                      \
  do {                                            \
    int found = (int)(call);                      \
    checks++;                                     \
    if (found != (int)(status)) {                 \
      if (failures++ > 20) leave_program(1);      \
      print("line ");                             \
      print_number(__LINE__);                     \
      print(": ");                                \
      print(fy_strerror(found));                  \
      print(", not " #status ": " #call " (");    \
      print(error.message);                       \
      print(")\n");                               \
    }                                             \
  } while (0)
#define TRUE(condition) EXPECT(1, (condition) ? 1 : 0)

static fy_memory range = {FIRST_FRAME, FRAMES, 0, 0};

static fy_core_config good_config(void) {
  fy_core_config config = fy_core_config_default();
  config.memory = &range;
  config.memory_ranges = 1;
  return config;
}

static void operations(void) {
  fy_platform_ops ops = kernel_ops(), good = ops;
  fy_core_config config = good_config();
  fy_yard *yard = (fy_yard *)&ops;
  size_t bytes = 7;

  EXPECT(FY_NULL_POINTER, fy_core_create(NULL, &config, &yard, &error));
  TRUE(yard == NULL && error.status == FY_NULL_POINTER);
  EXPECT(FY_NULL_POINTER, fy_core_create(&ops, NULL, &yard, &error));
  EXPECT(FY_NULL_POINTER, fy_core_create(&ops, &config, NULL, &error));
  EXPECT(FY_NULL_POINTER, fy_core_create(NULL, NULL, NULL, NULL));
  EXPECT(FY_NULL_POINTER, fy_core_tables(NULL, &bytes, &error));
  EXPECT(FY_NULL_POINTER, fy_core_tables(&config, NULL, &error));
  ops.size = sizeof ops - 1;
  EXPECT(FY_BAD_SIZE, fy_core_create(&ops, &config, &yard, &error));
  ops.size = 0;
  EXPECT(FY_BAD_SIZE, fy_core_create(&ops, &config, &yard, &error));
  ops.size = SIZE_MAX;
  EXPECT(FY_BAD_SIZE, fy_core_create(&ops, &config, &yard, &error));
#ifndef FY_HOOKS
  ops = good;
  ops.enter = NULL;
  EXPECT(FY_NULL_POINTER, fy_core_create(&ops, &config, &yard, &error));
  ops = good;
  ops.leave = NULL;
  EXPECT(FY_NULL_POINTER, fy_core_create(&ops, &config, &yard, &error));
  ops = good;
  ops.current_cpu = NULL;
  EXPECT(FY_NULL_POINTER, fy_core_create(&ops, &config, &yard, &error));
#endif
  ops = good;
  ops.panic = NULL;
  EXPECT(FY_NULL_POINTER, fy_core_create(&ops, &config, &yard, &error));
  ops = good;
  ops.frame_bytes = NULL; /* no frame has bytes: the tables have no place */
  EXPECT(FY_OUT_OF_MEMORY, fy_core_create(&ops, &config, &yard, &error));
  config.size = 8;
  EXPECT(FY_BAD_SIZE, fy_core_create(&good, &config, &yard, &error));
  config.size = sizeof config;
  config.version = 0x7f00;
  EXPECT(FY_BAD_VERSION, fy_core_create(&good, &config, &yard, &error));
  TRUE(bytes == 7);
}

static void ranges(void) {
  fy_platform_ops ops = kernel_ops();
  fy_core_config config = good_config();
  fy_memory several[2] = {{FIRST_FRAME, 100, 0, 0}, {FIRST_FRAME + 50, 100, 0, 0}};
  fy_range reserved[2] = {{FIRST_FRAME + 9, 4}, {FIRST_FRAME + 2, 4}};
  fy_yard *yard;

  config.memory = several;
  config.memory_ranges = 2;
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error)); /* they overlap */
  several[1].start = FIRST_FRAME - 200;
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error)); /* not in order */
  several[1].start = FIRST_FRAME + 100;
  several[1].count = 0;
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error)); /* empty */
  several[1].count = UINT64_MAX;
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error));
  several[1].start = UINT64_MAX - 1;
  several[1].count = 1;
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error));
  several[0].count = 30;
  several[1].start = (uint64_t)1 << 40; /* far away, and not mapped */
  EXPECT(FY_OUT_OF_MEMORY, fy_core_create(&ops, &config, &yard, &error)); /* 30 frames have no room */
  several[0].count = 100;
  several[1].start = FIRST_FRAME + 100;
  several[1].node = 64;
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error));
  several[1].node = 1u << 20;
  EXPECT(FY_NO_SUCH_NODE, fy_core_create(&ops, &config, &yard, &error));
  several[1].node = 0;
  several[1].reserved = 1;
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error));
  several[1].reserved = 0;
  several[0].count = 1;
  config.memory_ranges = 1;
  EXPECT(FY_OUT_OF_MEMORY, fy_core_create(&ops, &config, &yard, &error)); /* too little for the tables */
  config.memory_ranges = 0;
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error)); /* no memory */
  config.memory = NULL;
  config.memory_ranges = 3;
  EXPECT(FY_NULL_POINTER, fy_core_create(&ops, &config, &yard, &error));
  config.memory = (const fy_memory *)((const char *)several + 1);
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error)); /* not aligned */
  config.memory = several;
  config.memory_ranges = SIZE_MAX / 8;
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error));
  config = good_config();
  config.reserved_ranges = 2;
  EXPECT(FY_NULL_POINTER, fy_core_create(&ops, &config, &yard, &error));
  config.reserved = reserved;
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error)); /* not in order */
  reserved[1].start = UINT64_MAX;
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error));
  reserved[0].start = FIRST_FRAME;
  reserved[0].count = FRAMES;
  config.reserved_ranges = 1;
  EXPECT(FY_OUT_OF_MEMORY, fy_core_create(&ops, &config, &yard, &error)); /* nothing is left for the tables */
}

static void *unaligned_bytes(void *context, uint64_t frame) {
  (void)context;
  return memory + (frame - FIRST_FRAME) * FRAME_BYTES + 8;
}

static void *scattered_bytes(void *context, uint64_t frame) {
  (void)context;
  return memory + (FIRST_FRAME + FRAMES - 1 - frame) * FRAME_BYTES;
}

static void sizes(void) {
  static const uint64_t sections[] = {3 << 20, 1 << 20, (uint64_t)1 << 60, 1};
  fy_platform_ops ops = kernel_ops();
  fy_core_config config = good_config();
  fy_yard *yard;
  uint32_t at;

  for (at = 0; at < 4; at++) {
    config.section_size = sections[at];
    EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error));
  }
  config = good_config();
  config.frame_size = 5000;
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error));
  config.frame_size = 1;
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error));
  config.frame_size = (uint64_t)1 << 63;
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error));
  config = good_config();
  config.max_order = 300;
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error));
  config.max_order = 5; /* less than a pageblock's */
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error));
  config = good_config();
  config.cpus = 0;
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error));
  config.cpus = 1025;
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error));
  config.cpus = UINT32_MAX;
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error));
  config = good_config();
  config.device_start = UINT64_MAX;
  config.device_count = 1;
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error));
  config.device_start = FIRST_FRAME + FRAMES;
  config.device_count = UINT64_MAX / 8;
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error));
  config = good_config();
  config.policy = "no-such-policy";
  EXPECT(FY_UNKNOWN_POLICY, fy_core_create(&ops, &config, &yard, &error));
  config = good_config();
  ops.frame_bytes = unaligned_bytes;
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error));
  ops.frame_bytes = scattered_bytes;
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error));
  TRUE(yard == NULL);
}

static void tables(void) {
  static unsigned char apart[1 << 20] __attribute__((aligned(128)));
  fy_platform_ops ops = kernel_ops();
  fy_core_config config = good_config();
  fy_range reserved = {FIRST_FRAME + 1, 0};
  uint64_t frame;
  size_t bytes = 0;
  fy_yard *yard;

  EXPECT(FY_OK, fy_core_tables(&config, &bytes, &error));
  TRUE(bytes > FRAMES * 64 && bytes < sizeof apart);
  config.tables = apart;
  config.tables_size = bytes - 1;
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error));
  config.tables = apart + 8;
  config.tables_size = bytes;
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error));
  config.tables = memory + FRAME_BYTES;
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error)); /* in frames that are not reserved */
  config.reserved = &reserved;
  config.reserved_ranges = 1;
  EXPECT(FY_OK, fy_core_tables(&config, &bytes, &error));
  config.tables_size = bytes;
  reserved.count = (bytes + FRAME_BYTES - 1) / FRAME_BYTES - 1;
  EXPECT(FY_BAD_ARGUMENT, fy_core_create(&ops, &config, &yard, &error)); /* one frame too few */
  reserved.count++;
  EXPECT(FY_OK, fy_core_create(&ops, &config, &yard, &error));
  EXPECT(FY_OK, fy_yard_validate(yard, &error));
  fy_yard_destroy(yard);
  config.reserved_ranges = 0;
  config.tables = apart;
  EXPECT(FY_OK, fy_core_create(&ops, &config, &yard, &error));
  EXPECT(FY_OK, fy_alloc(yard, 0, FY_GFP_ATOMIC, &frame, &error));
  EXPECT(FY_WRONG_ORDER, fy_free(yard, frame, 1, &error));
  EXPECT(FY_BAD_FRAME, fy_free(yard, 1, 0, &error));
  EXPECT(FY_BAD_FLAGS, fy_alloc(yard, 0, 0x80000000u, &frame, &error));
  EXPECT(FY_BAD_ORDER, fy_alloc(yard, 300, FY_GFP_KERNEL, &frame, &error));
  EXPECT(FY_NULL_POINTER, fy_alloc(yard, 0, FY_GFP_KERNEL, NULL, &error));
  EXPECT(FY_NULL_POINTER, fy_alloc(NULL, 0, FY_GFP_KERNEL, &frame, NULL));
  EXPECT(FY_OK, fy_free(yard, frame, 0, &error));
  EXPECT(FY_ALREADY_FREE, fy_free(yard, frame, 0, NULL));
  EXPECT(FY_BAD_FRAME, fy_frame_at(yard, apart, &frame, &error));
  EXPECT(FY_OK, fy_frame_at(yard, memory + 5 * FRAME_BYTES + 7, &frame, &error));
  TRUE(frame == FIRST_FRAME + 5);
  EXPECT(FY_OK, fy_yard_validate(yard, &error));
  fy_yard_destroy(yard);
  fy_yard_destroy(NULL);
}

/* The library's memory functions, against loops. */
static void memory_functions(void) {
  unsigned char *at = memory;
  size_t bytes, from, to, n;
  int isright;

  for (bytes = 0; bytes < 40; bytes++) {
    for (from = 0; from < 20; from += 3) {
      for (to = 0; to < 20; to++) {
        for (n = 0; n < 100; n++) at[n] = at[n + 100] = (unsigned char)n;
        isright = memmove(at + to, at + from, bytes) == at + to;
        for (n = 0; n < bytes; n++) isright &= at[to + n] == at[100 + from + n];
        for (n = 0; n < 100; n++) isright &= (n >= to && n < to + bytes) || at[n] == at[n + 100];
        TRUE(isright);
      }
    }
    TRUE(memset(at + 1, 0x15a, bytes) == at + 1 && at[0] == 0 && at[bytes + 1] != 0x5a);
    for (n = 0; n < bytes; n++) TRUE(at[1 + n] == 0x5a);
    TRUE(memcpy(at + 300, at + 1, bytes) == at + 300 && memcmp(at + 300, at + 1, bytes) == 0);
    if (bytes > 0) {
      at[300 + bytes - 1] = 0xff;
      TRUE(memcmp(at + 300, at + 1, bytes) > 0 && memcmp(at + 1, at + 300, bytes) < 0);
      at[300 + bytes - 1] = 0;
      TRUE(strlen((const char *)at + 300) == bytes - 1);
    }
  }
}

/* Gets the failure that `plant_failure` has planted. */
static void expect_panic(const char *text) {
  uint64_t frame;

  TRUE(strlen(text) > 20);
  EXPECT(FY_PANICKED, fy_alloc(last_yard, 0, FY_GFP_KERNEL, &frame, &error));
  EXPECT(FY_PANICKED, fy_core_create(NULL, NULL, &last_yard, &error));
  print("the panic operation got: ");
  print(text);
  print("\n");
  print_number(checks);
  print(failures == 0 ? " checks passed\n" : " checks, some of which failed\n");
  leave_program(failures == 0 ? 0 : 1);
}

/* Writes 0 over the number of CPUs in the handle, by which the library then divides. */
static void plant_failure(void) {
  fy_platform_ops ops = kernel_ops();
  fy_core_config config = good_config();
  uint32_t *handle;
  uint64_t frame;
  size_t at;

  config.cpus = 113;
  ops.panic = expect_panic;
  EXPECT(FY_OK, fy_core_create(&ops, &config, &last_yard, &error));
  handle = (uint32_t *)(void *)last_yard;
  for (at = 0; at < 1000; at++) {
    if (handle[at] == 113) handle[at] = 0;
  }
  cpus[0].number = 5000;
  (void)fy_alloc(last_yard, 0, FY_GFP_KERNEL, &frame, &error);
}

int kernel(uint64_t argument) {
  (void)argument;
  error = fy_error_default();
  operations();
  ranges();
  sizes();
  tables();
  memory_functions();
  plant_failure();
  print("nothing has failed inside the library\n");
  return 1;
}
