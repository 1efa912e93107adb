// One request at a time, and of viewpoints always the newest: nothing piles up while a hand is faster than a network.

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

export class Requests {
  /** `trouble` is told the error when something went wrong, and null when an answer came again. */
  constructor(trouble) {
    this.trouble = trouble;
    this.first = [];
    this.newest = null;
    this.busy = false;
  }

  /** Asks when the line is free; a viewpoint that waits there already is dropped. */
  look(ask, done) {
    this.newest = { ask, done };
    this.work();
  }

  /** Asks before any viewpoint. Returns what takes it back, as long as it has not been answered. */
  before(ask, done, failed) {
    const job = { ask, done, failed, dropped: false };
    this.first.push(job);
    this.work();
    return () => {
      job.dropped = true;
    };
  }

  async work() {
    if (this.busy) return;
    this.busy = true;
    try {
      for (let job = this.next(); job !== null; job = this.next()) await this.attend(job);
    } finally {
      this.busy = false;
    }
  }

  next() {
    while (this.first.length > 0) {
      const job = this.first.shift();
      if (!job.dropped) return job;
    }
    const job = this.newest;
    this.newest = null;
    return job;
  }

  async attend(job) {
    let answer;
    try {
      answer = await job.ask();
    } catch (error) {
      this.trouble(error);
      if (!error.again) job.failed?.();
      else {
        await pause(error.again);
        if (job.failed !== undefined) this.first.unshift(job);
        else this.newest ??= job;
      }
      return;
    }
    this.trouble(null);
    try {
      if (!job.dropped) job.done(answer);
    } catch (error) {
      reportError(error);
    }
  }
}
