/* microhttpd — libmicrohttpd, loaded when a run listens. For launcher/exports/ only.
 *
 * It stands on a TLS library, which no other command of muster needs. A host without it can do all
 * but metrics.listen. */
#ifndef MUSTER_LAUNCHER_EXPORTS_MICROHTTPD_H
#define MUSTER_LAUNCHER_EXPORTS_MICROHTTPD_H

#include "base/err.h"

#include <microhttpd.h>

struct microhttpd {
	__typeof__(MHD_start_daemon) *start;
	__typeof__(MHD_stop_daemon) *stop;
	__typeof__(MHD_create_response_from_buffer) *response;
	__typeof__(MHD_add_response_header) *add_header;
	__typeof__(MHD_queue_response) *queue;
	__typeof__(MHD_destroy_response) *destroy;
	__typeof__(MHD_lookup_connection_value) *lookup;
};

/* NULL: it cannot be loaded. */
const struct microhttpd *exports_microhttpd(struct err *e);

#endif
