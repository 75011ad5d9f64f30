/*
 * Where libjansson is not installed: the name of its one type, for headers that also speak of JSON.
 * make check-gpu builds no source that does more with it.
 */
#ifndef MUSTER_TESTS_GPU_JANSSON_H
#define MUSTER_TESTS_GPU_JANSSON_H

typedef struct json_t json_t;

#endif
