/* curl — libcurl, loaded when the first request is sent. For base/http/ only.
 *
 * muster starts often, on every node, and sends requests seldom: linked to libcurl and the libraries
 * below it, each start took 18 ms in place of 6. A host without libcurl can do all but this. */
#ifndef MUSTER_BASE_HTTP_CURL_H
#define MUSTER_BASE_HTTP_CURL_H

#define CURL_DISABLE_TYPECHECK /* its macros hide the functions */
#include "base/err.h"

#include <curl/curl.h>

struct curl_library {
	__typeof__(curl_global_init) *global_init;
	__typeof__(curl_easy_init) *init;
	__typeof__(curl_easy_setopt) *setopt;
	__typeof__(curl_easy_perform) *perform;
	__typeof__(curl_easy_getinfo) *getinfo;
	__typeof__(curl_easy_cleanup) *cleanup;
	__typeof__(curl_easy_strerror) *strerror;
	__typeof__(curl_slist_append) *append;
	__typeof__(curl_slist_free_all) *free_all;
	__typeof__(curl_multi_init) *multi_init;
	__typeof__(curl_multi_cleanup) *multi_cleanup;
	__typeof__(curl_multi_add_handle) *multi_add;
	__typeof__(curl_multi_remove_handle) *multi_remove;
	__typeof__(curl_multi_perform) *multi_perform;
	__typeof__(curl_multi_poll) *multi_poll;
	__typeof__(curl_multi_info_read) *multi_info;
	__typeof__(curl_multi_setopt) *multi_setopt;
};

/* NULL: it cannot be loaded. From any thread. */
const struct curl_library *http_curl(struct err *e);

#endif
