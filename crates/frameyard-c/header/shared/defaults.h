// Zeroes a structure. It needs no C library.
static inline void fy_zero(void *at, size_t bytes) {
  unsigned char *byte = (unsigned char *)at;
  while (bytes-- > 0) *byte++ = 0;
}

// An error without content.
static inline fy_error fy_error_default(void) {
  fy_error error;
  fy_zero(&error, sizeof error);
  error.size = sizeof error;
  return error;
}

// A request without order, count, alignment and node: set `order` or `count`.
static inline fy_request fy_request_default(void) {
  fy_request request;
  fy_zero(&request, sizeof request);
  request.size = sizeof request;
  request.order = FY_NO_ORDER;
  request.align = FY_NO_ORDER;
  request.node = FY_NO_NODE;
  return request;
}

// A device without frames: set `start` and `count`.
static inline fy_device_request fy_device_request_default(void) {
  fy_device_request request;
  fy_zero(&request, sizeof request);
  request.size = sizeof request;
  return request;
}

// Empty results for the functions that fill them.
static inline fy_frame fy_frame_default(void) {
  fy_frame frame;
  fy_zero(&frame, sizeof frame);
  frame.size = sizeof frame;
  return frame;
}

static inline fy_geometry fy_geometry_default(void) {
  fy_geometry geometry;
  fy_zero(&geometry, sizeof geometry);
  geometry.size = sizeof geometry;
  return geometry;
}

static inline fy_statistics fy_statistics_default(void) {
  fy_statistics statistics;
  fy_zero(&statistics, sizeof statistics);
  statistics.size = sizeof statistics;
  return statistics;
}

static inline fy_device fy_device_default(void) {
  fy_device device;
  fy_zero(&device, sizeof device);
  device.size = sizeof device;
  return device;
}
