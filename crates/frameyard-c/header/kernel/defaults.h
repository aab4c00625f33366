// Operations without content: set those that are required.
static inline fy_platform_ops fy_platform_ops_default(void) {
  fy_platform_ops ops;
  fy_zero(&ops, sizeof ops);
  ops.size = sizeof ops;
  return ops;
}

// Settings with `size`, `version` and one CPU set, and all others 0: set `memory` and `memory_ranges`.
static inline fy_core_config fy_core_config_default(void) {
  fy_core_config config;
  fy_zero(&config, sizeof config);
  config.size = sizeof config;
  config.version = FY_VERSION;
  config.cpus = 1;
  return config;
}
