/*
 * jansson — replaces libjansson's header where it is not installed. It has the name of the type,
 * for headers that mention JSON. make check-gpu builds no source that uses more of it.
 */
#ifndef MUSTER_TESTS_GPU_JANSSON_H
#define MUSTER_TESTS_GPU_JANSSON_H

typedef struct json_t json_t;

#endif
