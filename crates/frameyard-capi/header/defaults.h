// Settings with `size` and `version` set and all others 0.
static inline fy_config fy_config_default(void) {
  fy_config config;
  memset(&config, 0, sizeof config);
  config.size = sizeof config;
  config.version = FY_VERSION;
  return config;
}

// An error without content.
static inline fy_error fy_error_default(void) {
  fy_error error;
  memset(&error, 0, sizeof error);
  error.size = sizeof error;
  return error;
}

// A request without order, count, alignment and node: set `order` or `count`.
static inline fy_request fy_request_default(void) {
  fy_request request;
  memset(&request, 0, sizeof request);
  request.size = sizeof request;
  request.order = FY_NO_ORDER;
  request.align = FY_NO_ORDER;
  request.node = FY_NO_NODE;
  return request;
}

// Empty results for the functions that fill them.
static inline fy_frame fy_frame_default(void) {
  fy_frame frame;
  memset(&frame, 0, sizeof frame);
  frame.size = sizeof frame;
  return frame;
}

static inline fy_geometry fy_geometry_default(void) {
  fy_geometry geometry;
  memset(&geometry, 0, sizeof geometry);
  geometry.size = sizeof geometry;
  return geometry;
}

static inline fy_statistics fy_statistics_default(void) {
  fy_statistics statistics;
  memset(&statistics, 0, sizeof statistics);
  statistics.size = sizeof statistics;
  return statistics;
}
