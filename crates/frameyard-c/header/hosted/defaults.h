// Settings with `size` and `version` set and all others 0.
static inline fy_config fy_config_default(void) {
  fy_config config;
  fy_zero(&config, sizeof config);
  config.size = sizeof config;
  config.version = FY_VERSION;
  return config;
}

// The bytes of a device: set `bytes`, and a backing other than a memory file.
static inline fy_device_memory fy_device_memory_default(void) {
  fy_device_memory memory;
  fy_zero(&memory, sizeof memory);
  memory.size = sizeof memory;
  return memory;
}

// A mapping of anonymous memory at an address that the space chooses: set `bytes`.
static inline fy_mapping fy_mapping_default(void) {
  fy_mapping mapping;
  fy_zero(&mapping, sizeof mapping);
  mapping.size = sizeof mapping;
  return mapping;
}
