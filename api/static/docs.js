const place = document.getElementById("swagger-ui");
SwaggerUIBundle({
  url: place.dataset.document,
  domNode: place,
  presets: [SwaggerUIBundle.presets.apis], layout: "BaseLayout",
  deepLinking: true,
  validatorUrl: null, // it would send the document to another host
});
