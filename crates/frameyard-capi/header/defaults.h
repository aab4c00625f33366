// Settings with `size` and `version` set and all others 0.
static inline fy_config fy_config_default(void) {
  fy_config config;
  fy_zero(&config, sizeof config);
  config.size = sizeof config;
  config.version = FY_VERSION;
  return config;
}

