// One cluster: which policies it was given, by whom, when, and from where.

import { el, table } from "./dom.js";
import { moment } from "./format.js";
import { items } from "./http.js";

export async function clusterPage(section, { argument, signal }) {
  const [changes, policies] = await Promise.all(
    [`/v1/clusters/${encodeURIComponent(argument)}/history`, "/v1/policies"].map((path) => items(path, { signal })));
  const names = new Map(policies.map((each) => [each.id, each.name]));
  const linkOf = (id) => (names.has(id) ? el("a", { href: `/console/policies/${encodeURIComponent(id)}` }, names.get(id)) : id);
  section.replaceChildren(
    el("nav", { "aria-label": "Where this is" }, el("a", { href: "/console/policies" }, "Policies")),
    el("h1", {}, argument),
    table("Its policies, the latest first", ["Policy", "Since", "Who", "From"], changes.reverse().map((each) =>
      [linkOf(each.id), moment(each.at), each.user, each.origin])),
  );
}
