#include "launcher/exports/microhttpd.h"

#include "base/library.h"

static struct microhttpd lib;

static const struct library_symbol symbols[] = {
	LIBRARY_NEEDS(microhttpd, start, "MHD_start_daemon"),
	LIBRARY_NEEDS(microhttpd, stop, "MHD_stop_daemon"),
	LIBRARY_NEEDS(microhttpd, response, "MHD_create_response_from_buffer"),
	LIBRARY_NEEDS(microhttpd, add_header, "MHD_add_response_header"),
	LIBRARY_NEEDS(microhttpd, queue, "MHD_queue_response"),
	LIBRARY_NEEDS(microhttpd, destroy, "MHD_destroy_response"),
	LIBRARY_NEEDS(microhttpd, lookup, "MHD_lookup_connection_value"),
};

static struct library microhttpd = {
	.name = "libmicrohttpd",
	.files = { "libmicrohttpd.so.12" },
	.code = ERR_UNSUPPORTED,
	.remedy = "install the package libmicrohttpd12",
	.symbols = symbols,
	.count = sizeof symbols / sizeof *symbols,
	.table = &lib,
	.lock = PTHREAD_MUTEX_INITIALIZER,
};

const struct microhttpd *exports_microhttpd(struct err *e)
{
	return library_load(&microhttpd, e) ? NULL : &lib;
}
