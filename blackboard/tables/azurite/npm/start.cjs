/*
 * Starts Azurite's table service, and makes three things of it that are otherwise missing.
 *
 * Etags that are never used twice, Timestamps that never go back. The service promises both, and a
 * lock that is told apart from the next one by its etag needs the first. Azurite makes them from
 * the moment a request began and four digits of an unrelated nanosecond counter: of 12,800 writes
 * that raced, 349 got an etag that another version of the row had already had, and one Timestamp in
 * a thousand was earlier than the one before. Here those four digits count.
 *
 * A clock that tests turn. A request that carries `x-blackboard-clock: <milliseconds since 1970>`
 * is handled as if it were exactly that time: Timestamps, etags, the `Date` of the reply. Each
 * request has its own time, so tests with clocks of their own may share one emulator; requests
 * without the header see the host's. Such a clock may stand still or go back, so under it the digits
 * count on and on: 10,000 writes in one millisecond are told apart.
 *
 * An end. The emulator closes down when its stdin ends: whoever started it holds the other end of
 * that pipe, and the kernel closes it however its holder dies.
 *
 * On standard output it says `listening on PORT`, which is how port 0 (any free one) is found out.
 */
"use strict";

const { AsyncLocalStorage } = require("node:async_hooks");
const http = require("node:http");
const utils = require("azurite/dist/src/common/utils/utils.js");

const CLOCK = "x-blackboard-clock";

const turned = new AsyncLocalStorage();
const hostNow = Date.now;

Date.now = () => turned.getStore() ?? hostNow();
globalThis.Date = new Proxy(Date, {
  construct: (date, given, made) =>
    Reflect.construct(date, given.length ? given : [date.now()], made),
});

let underTurned = 0;
let latest = { moment: 0, count: 0 };

// Writes come in another order than their requests began.
function stampOfHost(moment) {
  if (moment > latest.moment) latest = { moment, count: 0 };
  else if (latest.count < 9999) latest = { moment: latest.moment, count: latest.count + 1 };
  else latest = { moment: latest.moment + 1, count: 0 };
  return latest;
}

function stamp(began) {
  const isHost = turned.getStore() === undefined;
  const { moment, count } = isHost
    ? stampOfHost(began.getTime())
    : { moment: began.getTime(), count: underTurned++ % 10000 };
  return new Date(moment).toISOString().replace("Z", `${String(count).padStart(4, "0")}Z`);
}

const coarser = utils.truncatedISO8061Date;
utils.truncatedISO8061Date = (date, withMilliseconds, precisely) =>
  precisely ? stamp(date) : coarser(date, withMilliseconds);

// Node's own Date is up to a second old, and Azurite's is missing from some replies.
function dateReply(response, now) {
  const writeHead = response.writeHead;
  response.writeHead = function (...head) {
    this.setHeader("Date", new Date(now ?? hostNow()).toUTCString());
    return writeHead.apply(this, head);
  };
}

const emit = http.Server.prototype.emit;
http.Server.prototype.emit = function (event, ...given) {
  if (event === "listening") console.log(`listening on ${this.address().port}`);
  if (event !== "request") return emit.call(this, event, ...given);
  const [request, response] = given;
  const asked = request.headers[CLOCK];
  const now = asked === undefined ? undefined : Number(asked);
  if (asked !== undefined && !/^\d{1,15}$/.test(asked)) {
    response.writeHead(400).end(`${CLOCK}: milliseconds since 1970, please\n`);
    return true;
  }
  dateReply(response, now);
  return turned.run(now, () => emit.call(this, event, ...given));
};

process.stdin.on("close", () => process.kill(process.pid, "SIGINT"));
process.stdin.resume();
process.stdin.unref(); // a service that has closed down does not wait for its stdin

require("azurite/dist/src/table/main.js");
